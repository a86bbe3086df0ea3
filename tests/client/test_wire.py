"""The wire format: byte-compatible with openpi's; everything else is refused."""

import time
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from recap.errors import WireError
from recap_client.wire import MAX_DEPTH, MAX_ITEMS, decode, decode_map, encode

DTYPES = ["?", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", ">f4", ">i8"]
ROOM = 2**20
ARRAYS = hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    PLAIN | st.binary() | ARRAYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and a == b


def array(dtype: object = "<f4", shape: object = (2,), data: object = b"\0" * 8, **more: object) -> bytes:
    parts: dict[Any, Any] = {b"__ndarray__": True, b"data": data, b"dtype": dtype, b"shape": shape}
    return msgpack.packb(parts | {k.encode(): v for k, v in more.items()})


@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_an_encoded_message_decodes_to_itself(message: dict[str, Any]) -> None:
    assert equal(decode_map(encode(message), ROOM), message)


@given(st.sampled_from(DTYPES), st.integers(0, 1))
def test_a_numpy_scalar_keeps_its_type(dtype: str, value: int) -> None:
    number = np.dtype(dtype).type(value)
    back = decode(encode(number), ROOM)
    assert back == number
    assert np.asarray(back).dtype.kind == number.dtype.kind


def test_encoded_bytes_equal_openpis() -> None:
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    theirs = {b"__ndarray__": True, b"data": image.tobytes(), b"dtype": "|u1", b"shape": (2, 2, 3)}
    assert encode({"x": image}) == msgpack.packb({"x": theirs})
    assert encode(np.float32(2.5)) == msgpack.packb({b"__npgeneric__": True, b"data": 2.5, b"dtype": "<f4"})


def test_non_contiguous_arrays_are_encoded_correctly() -> None:
    array = np.arange(24).reshape(4, 6)[::2, ::-3]
    assert equal(decode(encode(array), ROOM), np.ascontiguousarray(array))


@pytest.mark.parametrize(
    "value",
    [
        np.array([object()]),
        np.zeros(2, complex),
        np.zeros(2, "V4"),
        np.array(["a"]),
        np.zeros(2, "datetime64[s]"),
        np.zeros(2, [("a", "f4")]),
        {1, 2},
        object(),
        2**64,
        "\ud800",
    ],
)
def test_values_that_cannot_be_encoded_are_refused(value: object) -> None:
    with pytest.raises(WireError):
        encode({"x": value})


BAD = {
    "nothing": b"",
    "half an array": array()[:-3],
    "two messages": msgpack.packb(1) * 2,
    "an extension": msgpack.packb(msgpack.ExtType(5, b"abc")),
    "a timestamp": msgpack.packb(msgpack.Timestamp(1, 2)),
    "a reserved byte": b"\xc1",
    "text that is no text": b"\xa2\xff\xfe",
    "a list of four billion": b"\xdd\xff\xff\xff\xff",
    "a map of four billion": b"\xdf\xff\xff\xff\xff",
    "four billion bytes": b"\xc6\xff\xff\xff\xff",
    "many small maps": b"\xdd\x00\x10\x00\x00" + b"\x80" * 2**20,
    "a deep list": b"\x91" * 100_000 + b"\x90",
    "a deep map": b"\x81\xa1x" * (MAX_DEPTH + 1) + b"\x90",
    "a number as a key": msgpack.packb({1: 2}),
    "bytes as a key": msgpack.packb({b"x": 2}),
    "an object array": array("|O", (1,)),
    "a void array": array("|V8", (1,)),
    "a complex array": array("<c8", (1,)),
    "a record": array("f4,i4", (1,)),
    "a time": array("<M8[s]", (1,)),
    "a long double": array("<f16", (1,), b"\0" * 16),
    "a type that is no text": array(5),
    "a type of bytes that is none": array(b"\xff\xfe"),
    "too few bytes": array("<f4", (3,)),
    "too many bytes": array("<f4", (1,)),
    "a huge shape": array("<f4", (2**31, 2**31, 2**31)),
    "a huge empty shape": array("<f4", (2**31, 0, 2**31, 2**40), b""),
    "a negative shape": array("<f4", (-1,)),
    "a shape of floats": array("<f4", (2.0,)),
    "a shape of bools": array("|u1", (True,), b"\0"),
    "a shape that is a number": array("<f4", 2),
    "too many dimensions": array("|u1", (1,) * 40, b"\0"),
    "text as data": array("<f4", (2,), "12345678"),
    "another part": array(x=1),
    "a part too few": msgpack.packb({b"__ndarray__": True, b"data": b""}),
    "not quite an array": msgpack.packb({b"__ndarray__": 1, b"data": b"", b"dtype": "<f4", b"shape": [0]}),
    "a number of text": msgpack.packb({b"__npgeneric__": True, b"data": "1", b"dtype": "<f4"}),
    "a number too large": msgpack.packb({b"__npgeneric__": True, b"data": 300, b"dtype": "|u1"}),
    "an object number": msgpack.packb({b"__npgeneric__": True, b"data": 1, b"dtype": "|O"}),
}


@pytest.mark.parametrize("what", BAD)
def test_malformed_bytes_are_a_one_line_error_without_much_work(what: str) -> None:
    started = time.process_time()
    with pytest.raises(WireError) as caught:
        decode(BAD[what], 2**22)
    assert time.process_time() - started < 1.0
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_messages_too_large_or_not_a_map_are_refused() -> None:
    with pytest.raises(WireError, match="too large"):
        decode(encode(b"x" * 2000), 1000)
    with pytest.raises(WireError, match="not a map"):
        decode_map(encode([1]), ROOM)
    assert decode(encode([0] * (MAX_ITEMS - 1)), ROOM) == [0] * (MAX_ITEMS - 1)
    with pytest.raises(WireError, match="more than"):
        decode(encode([0] * MAX_ITEMS), ROOM)


def deep(n: int) -> Any:
    return [] if n == 0 else [deep(n - 1)]


def test_nesting_is_accepted_up_to_the_limit() -> None:
    assert decode(encode(deep(MAX_DEPTH)), ROOM) == deep(MAX_DEPTH)
    with pytest.raises(WireError, match="deep"):
        decode(encode(deep(MAX_DEPTH + 1)), ROOM)


def refused_in_one_line(data: bytes) -> bool:
    try:
        decode(data, ROOM)
    except WireError as error:
        return "\n" not in str(error)
    return True


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_random_bytes_decode_or_raise_a_wire_error(data: bytes) -> None:
    assert refused_in_one_line(data)


@settings(max_examples=200)
@given(VALUES, st.integers(0, 500), st.integers(0, 255))
def test_a_message_with_one_changed_byte_decodes_or_raises_a_wire_error(
    value: Any, at: int, byte: int
) -> None:
    data = bytearray(encode(value))
    data[at % len(data)] = byte
    assert refused_in_one_line(bytes(data))
