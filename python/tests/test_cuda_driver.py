"""CUDA arrays without a GPU: the whole way from Python to the driver, which is the one of the C++ tests and computes nothing.

Each test is a process of its own: the library opens one driver for as long as it lives.
"""
from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

root = pathlib.Path(__file__).resolve().parents[2]
fakes = {name: pathlib.Path(os.environ.get(f"TESSERA_FAKE_{name}", root / "build/release/tests/cuda" / file))
         for name, file in (("CUDA", "libtessera_fake_cuda.so"), ("NVRTC", "libnvrtc-fake.so.13"))}
pytestmark = pytest.mark.skipif(not all(path.is_file() for path in fakes.values()),
                                reason="the C++ tests' driver is not built here (TESSERA_FAKE_CUDA, TESSERA_FAKE_NVRTC)")

PREAMBLE = """
    import ctypes, os
    import numpy as np
    import tessera

    driver = ctypes.CDLL(os.environ["TESSERA_CUDA_DRIVER"])
    assert tessera.backends()["cuda:sm_80"][0], tessera.backends()

    def ask(name, *args):
        code = getattr(driver, name)(*args)
        assert code == 0, (name, code)

    handle, context = ctypes.c_int(), ctypes.c_void_p()
    ask("cuDeviceGet", ctypes.byref(handle), 0)
    ask("cuDevicePrimaryCtxRetain", ctypes.byref(context), handle)
    ask("cuCtxPushCurrent_v2", context)

    class Tensor(ctypes.Structure):  # DLTensor
        _fields_ = [("data", ctypes.c_void_p), ("kind", ctypes.c_int32), ("index", ctypes.c_int32), ("rank", ctypes.c_int32),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                    ("shape", ctypes.POINTER(ctypes.c_int64)), ("stride", ctypes.c_void_p), ("offset", ctypes.c_uint64)]

    class Managed(ctypes.Structure):
        _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("free", ctypes.c_void_p)]

    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    class OnDevice:
        '''bfloat16 or integers in memory of the driver; notes for which streams it is asked to be ready.'''
        def __init__(self, *shape, code=4, bits=16, index=0):
            data = ctypes.c_uint64()
            ask("cuMemAlloc_v2", ctypes.byref(data), ctypes.c_size_t(int(np.prod(shape)) * bits // 8))
            self.extents, self.index, self.streams = (ctypes.c_int64 * len(shape))(*shape), index, []
            self.managed = Managed(Tensor(data.value, 2, index, len(shape), code, bits, 1, self.extents, None, 0), None, None)
        def __dlpack_device__(self):
            return (2, self.index)
        def __dlpack__(self, *, stream=None, **_):
            self.streams.append(stream)
            return capsule(ctypes.addressof(self.managed), b"dltensor", None)

    def refused(*parts, **call):
        try:
            tessera.attention(**call)
        except tessera.Error as error:
            assert all(part in str(error) for part in parts), str(error)
            return
        raise AssertionError(f"not refused: {parts}")

    q, k, v, out = OnDevice(2, 40, 4, 64), OnDevice(2, 50, 2, 64), OnDevice(2, 50, 2, 64), OnDevice(2, 40, 4, 64)
    stream = ctypes.c_void_p()
    ask("cuStreamCreate", ctypes.byref(stream), 1)
"""


def in_a_process(body: str, folder) -> None:
    code = textwrap.dedent(PREAMBLE) + textwrap.dedent(body)
    environment = {**os.environ, "TESSERA_CUDA_DRIVER": str(fakes["CUDA"]), "TESSERA_NVRTC": str(fakes["NVRTC"]),
                   "TESSERA_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=100)
    assert done.returncode == 0, done.stderr


def test_calls_reach_the_driver_on_the_stream(tmp_path):
    in_a_process("""
        assert tessera.plan(q, k, v, mask="causal").backend == "cuda:sm_80"
        for x in (q, k, v, out):
            x.streams.clear()
        assert tessera.attention(q, k, v, mask="causal", out=out, stream=stream.value) is out
        for x in (k, v, out):
            assert x.streams == [stream.value], x.streams
        assert tessera.attention(q, k, v, out=out) is out  # nobody says which: the default stream, 1 in DLPack
        assert k.streams[-1] == 1
    """, tmp_path)


def test_numbers_about_the_call_stay_where_they_are(tmp_path):
    in_a_process("""
        lengths, table = np.array([48, 3], np.int32), np.array([[1, 0, 2, 7], [3, 9, 9, 9]], np.int32)
        pools = OnDevice(8, 16, 2, 64), OnDevice(8, 16, 2, 64)
        on_gpu = OnDevice(2, code=0, bits=32), OnDevice(2, 4, code=0, bits=32)
        for used, pages in ((lengths, table), (on_gpu[0], table), (lengths, on_gpu[1]), on_gpu):
            tessera.attention(q, *pools, mask="causal", out=out, lengths=used, block_table=pages, stream=stream.value)
        slopes = np.ones(4, np.float32)
        tessera.attention(q, k, v, score=tessera.alibi(slopes), out=out, stream=stream.value)
        text = repr(tessera.plan(q, *pools, lengths=on_gpu[0], block_table=table).problem)
        assert "there=lengths" in text and "paged page_size=16" in text, text
    """, tmp_path)


def test_what_is_refused(tmp_path):
    in_a_process("""
        refused("outputs are made for torch and CuPy", "out=", q=q, k=k, v=v)
        refused("v is on cuda:1, q on cuda:0", q=q, k=k, v=OnDevice(2, 50, 2, 64, index=1), out=out)
        refused("lengths[1] is 51", "k has 50 tokens", q=q, k=k, v=v, out=out, lengths=np.array([3, 51]))
        half = np.zeros((2, 50, 2, 64), np.float16)
        refused("k is on cpu, q on cuda:0", q=OnDevice(2, 40, 4, 64, code=2), k=half, v=half, out=out)
        refused("on the cpu or where q does", q=q, k=k, v=v, out=out, lengths=OnDevice(2, code=0, bits=32, index=1))
        refused("cpu:scalar", "CUDA device", q=q, k=k, v=v, out=out, backend="cpu:scalar")
        elsewhere = OnDevice(2, 50, 2, 64)
        elsewhere.managed.tensor.data = np.zeros(12800, np.float32).ctypes.data
        refused("v is said to be on device 0", "host memory", q=q, k=k, v=elsewhere, out=out)
    """, tmp_path)
