"""Pictures of the notebooks, as matplotlib figures; one module an idea."""
