"""Whatever lies in a folder under the name of an image: it is read, or an OSError names it."""

import gc
import os
import sys
import warnings

import numpy as np
import PIL.Image
import pytest
from PIL import Image

from bcnn.data.preprocess import open_image

from .pictures import photograph, write

GREY = np.tile(np.linspace(0, 255, 48).astype(np.uint8), (36, 1))


def palette():
    image = photograph().quantize(16)
    image.info["transparency"] = bytes(range(16))
    return image


def assert_like(image, expected, atol):
    assert image.mode == "RGB"
    difference = np.abs(np.asarray(image).astype(int) - np.asarray(expected.convert("RGB")).astype(int))
    assert np.median(difference) <= atol


@pytest.mark.parametrize(
    ("name", "make", "expected", "atol"),
    [
        ("grey.jpg", lambda: Image.fromarray(GREY), Image.fromarray(GREY), 2),
        ("grey_alpha.png", lambda: Image.fromarray(GREY).convert("LA"), Image.fromarray(GREY), 0),
        ("sixteen.png", lambda: Image.fromarray(GREY.astype(np.uint16) * 257), Image.fromarray(GREY), 0),
        ("sixteen.tif", lambda: Image.fromarray(GREY.astype(np.uint16) * 257), Image.fromarray(GREY), 0),
        ("bits.png", lambda: Image.fromarray(GREY > 99), Image.fromarray((GREY > 99).astype(np.uint8) * 255), 0),
        ("cmyk.jpg", lambda: photograph().convert("CMYK"), photograph(), 4),
        ("cmyk.tif", lambda: photograph().convert("CMYK"), photograph(), 0),
        ("palette.png", lambda: photograph().quantize(64), photograph(), 16),
        ("transparent.png", palette, photograph(), 40),
        ("alpha.png", lambda: photograph().convert("RGBA"), photograph(), 0),
        ("alpha.webp", lambda: photograph().convert("RGBA"), photograph(), 12),
        ("one_pixel.png", lambda: photograph().crop((0, 0, 1, 1)), photograph().crop((0, 0, 1, 1)), 0),
    ],
)
@pytest.mark.filterwarnings("error")
def test_every_kind_of_pixel_becomes_rgb(tmp_path, name, make, expected, atol):
    make().save(tmp_path / name)
    assert_like(open_image(tmp_path / name), expected, atol)


@pytest.mark.parametrize("suffix", ["gif", "tif"])
def test_the_first_of_several_pictures_counts(tmp_path, suffix):
    frames = [photograph(seed) for seed in range(3)]
    frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:])
    image = open_image(tmp_path / f"a.{suffix}")
    assert image.size == (48, 36)
    assert_like(image, frames[0], 24)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_camera_is_turned_back(tmp_path, orientation):
    back = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # Pillow's numbers of the inverse turns
    stored = photograph() if orientation == 1 else photograph().transpose(PIL.Image.Transpose(back[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(np.asarray(open_image(tmp_path / "a.png")), np.asarray(photograph()))


@pytest.mark.parametrize("suffix", ["png", "webp"])
@pytest.mark.parametrize("make", [photograph, palette, lambda: photograph().convert("RGBA")])
def test_palettes_and_alpha_turn_with_the_picture(tmp_path, suffix, make):
    path, exif = tmp_path / f"a.{suffix}", Image.Exif()
    exif[0x0112] = 6
    make().save(path, exif=exif)
    with Image.open(path) as stored:
        expected = stored.convert("RGBA").convert("RGB").transpose(PIL.Image.Transpose.ROTATE_270)
    opened = open_image(path)
    assert type(opened) is Image.Image  # and no longer the file
    np.testing.assert_array_equal(np.asarray(opened), np.asarray(expected))


def test_a_turn_is_made_though_the_rest_of_the_exif_data_is_damaged(tmp_path, monkeypatch):
    exif = Image.Exif()
    exif[0x0112] = 6
    photograph().save(tmp_path / "a.jpg", exif=exif)

    def fail(self, offset=8):
        raise ValueError("a tag that cannot be written again")

    monkeypatch.setattr(Image.Exif, "tobytes", fail)
    assert open_image(tmp_path / "a.jpg").size == (36, 48)


@pytest.mark.parametrize(
    "exif",
    [
        b"Exif\x00\x00II*\x00\x08\x00\x00\x00\xff\xff\x12\x01",  # more entries than there are bytes
        b"Exif\x00\x00nonsense",
        b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x02\x00\x00\x00\x04abc\x00\x00\x00\x00\x00",  # text
        b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x63\x00\x00\x00\x00\x00\x00",
    ],
    ids=["cut off", "nonsense", "text", "orientation 99"],
)
def test_damaged_exif_data_do_not_hide_the_picture(tmp_path, exif):
    photograph().save(tmp_path / "a.jpg", exif=exif)
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        assert open_image(tmp_path / "a.jpg").size == (48, 36)
    assert not caught


def truncated(path):
    whole = write(path).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def with_floats(path):
    Image.fromarray(GREY.astype(np.float32)).save(path, format="TIFF")


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("truncated.jpg", truncated),
        ("truncated.png", truncated),
        ("truncated.gif", truncated),
        ("empty.jpg", lambda path: path.touch()),
        ("text.jpg", lambda path: path.write_text("<html>404</html>")),
        ("zeros.jpg", lambda path: path.write_bytes(bytes(5000))),
        ("header.png", lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(50))),
        ("floats.tif", with_floats),
        ("folder.jpg", lambda path: path.mkdir()),
        ("dangling.jpg", lambda path: path.symlink_to(path.parent / "nowhere")),
        ("loop.jpg", lambda path: path.symlink_to(path)),
        ("missing.jpg", lambda path: None),
        ("pipe.jpg", os.mkfifo),
    ],
)
def test_broken_files_are_named(tmp_path, name, spoil):
    spoil(tmp_path / name)
    with pytest.raises(OSError, match=name.replace(".", r"\.")):
        open_image(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path):
    write(tmp_path / "a.jpg").chmod(0)
    with pytest.raises(PermissionError, match=r"a\.jpg"):
        open_image(tmp_path / "a.jpg")


def test_a_permission_error_stays_one(tmp_path, monkeypatch):
    def refuse(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    write(tmp_path / "a.jpg")
    monkeypatch.setattr(PIL.Image, "open", refuse)
    with pytest.raises(PermissionError, match=r"a\.jpg"):
        open_image(tmp_path / "a.jpg")


def test_gigantic_images_are_named_and_large_ones_read_without_a_warning(tmp_path, monkeypatch):
    write(tmp_path / "a.png")
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 48 * 36 - 1)
        assert open_image(tmp_path / "a.png").size == (48, 36)
        assert not caught
        monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 48 * 36 // 3)
        with pytest.raises(OSError, match=r"a\.png: .* DecompressionBombError"):
            open_image(tmp_path / "a.png")
        warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)  # a caller with a rule of his own
        monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 48 * 36 - 1)
        with pytest.raises(OSError, match=r"a\.png: .* DecompressionBombWarning"):
            open_image(tmp_path / "a.png")


@pytest.mark.skipif(sys.platform != "linux", reason="counts open files in /proc")
def test_files_are_closed(tmp_path):
    write(tmp_path / "good.jpg")
    truncated(tmp_path / "bad.png")
    (tmp_path / "text.jpg").write_text("x")
    photograph().save(tmp_path / "several.gif", save_all=True, append_images=[photograph(1)])
    gc.disable()
    try:
        kept = []
        for name in ("good.jpg", "bad.png", "text.jpg", "several.gif"):
            try:
                kept.append(open_image(tmp_path / name))
            except OSError as error:
                kept.append(error)
        names = [
            os.readlink(f"/proc/self/fd/{fd}")
            for fd in os.listdir("/proc/self/fd")
            if os.path.lexists(f"/proc/self/fd/{fd}")
        ]
        assert not [name for name in names if str(tmp_path) in name]
    finally:
        gc.enable()
