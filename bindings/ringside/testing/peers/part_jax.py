# The package, in this process.
import jax


def main():
    for run in range(5 if DEVICE == "cuda" else 1):
        print(f"run {run}")
        run_once()


def run_once():
    if DEVICE == "cuda":  # memory that is free holds NaN: whoever reads what nobody wrote shows it
        for gpu in jax.devices():
            jax.block_until_ready(jax.device_put(jax.numpy.full(1 << 28, nan), gpu))
    q, k, v, dout = (jax.numpy.asarray(x, DTYPE).reshape(x_shape) for x, x_shape in PROBLEM)
    out, pull = jax.vjp(lambda *operands: CALL(*operands, **ARGUMENTS), q, k, v)
    found = {"out": out}
    if GRADIENTS:
        found.update(zip(("dq", "dk", "dv"), pull(dout)))
    compare(found)


if __name__ == "__main__":
    main()
