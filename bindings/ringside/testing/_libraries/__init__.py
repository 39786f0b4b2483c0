"""What the ready adapters call: attention of torch and of JAX, for packs of documents."""
