"""Arrays of JAX, and of whoever speaks DLPack or __cuda_array_interface__, with backend="cuda"."""

import types

import numpy as np
import pytest
import ringside as rs
from cuda_cases import needs_gpu, to_device, to_host
from ringside._arrays import cuda as _cuda
from ringside._arrays import kinds as _cuda_kinds
from ringside.testing import Case

CASE = Case(
    rs.PackedLayout([0, 70, 71, 160], [0, 72, 80, 170]), cp_size=4, num_heads=4, num_kv_heads=2,
    head_dim=64, head_dim_v=64,
)  # fmt: skip


class ByDlpack:
    """A bare object that lends an array's memory."""

    def __init__(self, x, device=2):
        self.x, self.device = x, device

    def __dlpack__(self, **keywords):
        return self.x.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return (self.device, 0)


class ByInterface:
    """A bare object that names an array's memory."""

    def __init__(self, x):
        self.x = x

    @property
    def __cuda_array_interface__(self):
        return self.x.__cuda_array_interface__


# --- without a GPU


def test_who_lies_on_a_device_is_asked_of_the_array():
    there = types.SimpleNamespace(__cuda_array_interface__={})
    assert _cuda_kinds._on_cuda_device(ByDlpack(None)) and _cuda_kinds._on_cuda_device(there)
    for x in (ByDlpack(None, device=1), np.zeros(3), 1.0, None):
        assert not _cuda_kinds._on_cuda_device(x)


def on_cpu(x):
    """A JAX array where NumPy can see it, also on a machine with a GPU."""
    import jax

    return jax.device_put(x, jax.devices("cpu")[0])


def test_jax_arrays_are_lent_and_come_back(monkeypatch):
    """On the CPU, where NumPy can be the host."""
    jnp = pytest.importorskip("jax.numpy")
    monkeypatch.setattr(_cuda_kinds, "CUDA_DEVICES", (1,))
    kind, x = _cuda_kinds.Jax(np), on_cpu(jnp.arange(6.0).reshape(2, 3))
    lent = kind.imported(x, "q")
    assert isinstance(lent, np.ndarray) and (lent == np.arange(6.0).reshape(2, 3)).all()
    back = kind.exported(np.arange(6.0, dtype=np.float32))
    assert isinstance(back, type(x)) and back.tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(TypeError, match="k is not on q's device or not q's kind"):
        kind.imported(np.zeros(3), "k")


def test_options_that_are_arrays_are_lent_too(monkeypatch):
    jnp = pytest.importorskip("jax.numpy")
    monkeypatch.setattr(_cuda_kinds, "CUDA_DEVICES", (1,))
    monkeypatch.setattr(_cuda_kinds, "kind_of", lambda q: _cuda_kinds.Jax(np))
    options = rs.Options(sink=on_cpu(jnp.ones(2)), alibi_slopes=0.5)
    _, named, lent = _cuda_kinds.all_imported({"q": on_cpu(jnp.ones(3))}, options)
    assert isinstance(named["q"], np.ndarray)
    assert isinstance(lent.sink, np.ndarray) and lent.alibi_slopes == 0.5


def test_jax_arrays_that_cannot_be_taken_are_refused_with_the_fix():
    jax = pytest.importorskip("jax")
    with pytest.raises(TypeError, match=r"jax\.device_put"):
        _cuda_kinds._jax_kind(jax.device_put(np.zeros(3), jax.devices("cpu")[0]))
    with pytest.raises(rs.Unsupported, match="attention_backward"):
        jax.jit(_cuda_kinds._jax_kind)(np.zeros(3))


def test_without_a_host_the_missing_one_is_named(monkeypatch):
    monkeypatch.setattr(_cuda_kinds.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(_cuda_kinds.sys, "modules", {})
    with pytest.raises(rs.Unsupported, match="lent to torch or cupy, not installed here"):
        _cuda_kinds.host_for(ByDlpack(None))
    narrow = types.SimpleNamespace(dtype="bfloat16")
    with pytest.raises(rs.Unsupported, match="lent to torch, not installed here"):
        _cuda_kinds.host_for(narrow)


class FakeCupy(types.ModuleType):
    """CuPy on two GPUs, device 0 current: what is made lies on the device that is current then."""

    float32 = np.float32

    def __init__(self):
        super().__init__("cupy")
        self.current, fake = [0], self

        class Device:
            def __init__(self, number):
                self.id = number

            def __enter__(self):
                fake.current.append(self.id)

            def __exit__(self, *_):
                fake.current.pop()

        class Array:
            def __init__(self, value, device=None):
                self.value = np.asarray(value)
                self.device = Device(fake.current[-1] if device is None else device)
                self.data = types.SimpleNamespace(ptr=4)  # aligned for nothing wide
                self.dtype, self.shape, self.ndim = np.dtype("f2"), (3, 1, 8), self.value.ndim
                self.strides, self.itemsize = (16, 16, 2), 2

            def copy(self, order="C"):
                return Array(self.value.copy(order))

        self.ndarray, self.array_on = Array, lambda value, device: Array(value, device)
        self.cuda = types.SimpleNamespace(
            Device=Device,
            get_current_stream=lambda: types.SimpleNamespace(ptr=100 + self.current[-1]),
        )

    def empty(self, shape, dtype):
        return self.ndarray(np.zeros(shape))

    def asarray(self, x, dtype):
        return x if isinstance(x, self.ndarray) else self.ndarray(x)

    def broadcast_to(self, x, shape):
        return self.ndarray(np.broadcast_to(x.value, shape))

    def ascontiguousarray(self, x):
        return x


def test_cupy_makes_everything_on_the_device_of_the_arrays(monkeypatch):
    cupy = FakeCupy()
    monkeypatch.setitem(_cuda.sys.modules, "cupy", cupy)
    q, elsewhere = cupy.array_on(np.zeros((3, 1, 8)), 1), cupy.array_on(np.zeros(4), 0)
    library = _cuda.library_of(q)
    assert library.cupy is cupy and library.device(q) == 1
    made = {
        "empty": library.empty((5,), q, "uint8"),
        "copy": library.ready(q),
        "number": library.vector(0.5, q, 4),
        "from elsewhere": library.vector(elsewhere, q, 4),
    }
    assert made["copy"] is not q
    assert {name: x.device.id for name, x in made.items()} == dict.fromkeys(made, 1)
    assert [library.stream(n) for n in (0, 1)] == [100, 101]
    assert cupy.current == [0]


def test_bare_objects_become_tensors_where_they_lie(monkeypatch):
    core = types.SimpleNamespace(device_of=lambda pointer: {16: 1, 0: -1}[pointer])
    monkeypatch.setattr(_cuda, "cuda_core", lambda: core)
    host = types.SimpleNamespace(__name__="torch", as_tensor=lambda x, device: device)
    for pointer, where in ((16, "cuda:1"), (0, "cuda")):
        bare = types.SimpleNamespace(__cuda_array_interface__={"data": (pointer, False)})
        assert _cuda_kinds.Foreign(host).imported(bare, "q") == where


# --- with one


def tensors(dtype="float32"):
    return [to_device(np.nan_to_num(x), dtype) for x in CASE.arrays()]


def run(q, k, v, dout, **options):
    """Everything, in the caller's kind of arrays."""
    plan = CASE.plan()
    keywords = {"backend": "cuda", **options}
    out, lse, max_logit = plan.attention(q, k, v, return_max_logit=True, **keywords)
    grads = plan.attention_backward(dout, q, k, v, out, lse, deterministic=True, **keywords)
    return out, lse, max_logit, *grads


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        assert (np.asarray(a).astype(np.float64) == to_host(b)).all()


def jax_on_gpu():
    jax = pytest.importorskip("jax")
    try:
        return jax, jax.devices("gpu")[0]
    except RuntimeError as error:
        pytest.skip(f"JAX sees no GPU: {error}")


@needs_gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_jax_arrays_come_back_as_jax_arrays_with_the_same_bits(dtype):
    jax, device = jax_on_gpu()
    given = tensors(dtype)
    of_jax = [jax.device_put(jax.numpy.asarray(to_host(x), dtype), device) for x in given]
    ours = run(*of_jax)
    assert all(isinstance(x, jax.Array) and x.devices() == {device} for x in ours)
    assert str(ours[0].dtype) == dtype
    assert_same(ours, run(*given))


@needs_gpu
def test_jax_arrays_with_options_and_dense_formats():
    jax, device = jax_on_gpu()
    plan = rs.plan(rs.PackedLayout.from_lengths([33, 33]), cp_size=2, num_heads=2)
    x = np.random.default_rng(0).normal(size=(2, 33, 2, 16)).astype(np.float32)
    sink = np.array([0.5, -1.0], np.float32)
    ours = plan.attention(
        *[jax.device_put(x, device)] * 3, sink=jax.device_put(sink, device), qkv_format="bshd",
        backend="cuda",
    )  # fmt: skip
    theirs = plan.attention(
        *[to_device(x)] * 3, sink=to_device(sink), qkv_format="bshd", backend="cuda"
    )
    assert isinstance(ours[0], jax.Array) and ours[0].shape == x.shape
    assert_same(ours, theirs)


@needs_gpu
def test_jax_and_torch_wait_for_each_other():
    """What JAX still computes is read when it is done; what is returned can be used at once."""
    jax, device = jax_on_gpu()
    big = jax.device_put(np.ones((4096, 4096), np.float32), device)
    given = tensors()
    q, *rest = (jax.device_put(to_host(x).astype(np.float32), device) for x in given)
    slow = jax.jit(lambda q, x: q + 0 * (x @ x @ x @ x @ x @ x)[0, 0])
    slow(q, big).block_until_ready()
    ours = run(slow(q, big), *rest)
    assert_same([x + 0 for x in ours], run(*given))


@needs_gpu
@pytest.mark.parametrize("bare", [ByDlpack, ByInterface])
def test_bare_objects_are_taken(bare):
    torch = pytest.importorskip("torch")
    given = tensors()
    plan, (q, k, v, dout) = CASE.plan(), (bare(x) for x in given)
    out, lse = plan.attention(q, k, v, backend="cuda")
    assert isinstance(out, torch.Tensor)  # torch is loaded here
    grads = plan.attention_backward(
        dout, q, k, v, bare(out), bare(lse), deterministic=True, backend="cuda"
    )
    wanted = run(*given)
    assert_same([to_host(x) for x in (out, lse, *grads)], [*wanted[:2], *wanted[3:]])


@needs_gpu
def test_kinds_are_not_mixed():
    jax, device = jax_on_gpu()
    q, k, v, _ = tensors()
    ours = jax.device_put(to_host(q).astype(np.float32), device)
    with pytest.raises(TypeError, match="k is not on q's device or not q's kind"):
        CASE.plan().attention(ours, k, v, backend="cuda")
    assert _cuda.problem() == ""
