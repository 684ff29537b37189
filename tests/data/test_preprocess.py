"""Pixels become what a network was trained on, and broken files are named."""

import os

import numpy as np
import pytest
import torch
from PIL import Image

from bcnn.data.preprocess import Preprocessing, open_image


def picture(width=40, height=20):
    rows, columns = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([columns * 6, rows * 12, rows + columns], -1).astype(np.uint8))


def test_normalization_is_the_formula():
    image = picture(16, 16)
    result = Preprocessing(size=16)(image)
    expected = (np.asarray(image) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(result.numpy(), expected.transpose(2, 0, 1), rtol=1e-5, atol=1e-6)
    assert result.dtype == torch.float32
    assert result.is_contiguous()


def test_matconvnet_pixels_stay_between_0_and_255():
    mean = (123.68, 116.779, 103.939)
    result = Preprocessing(size=16, pixel_max=255.0, mean=mean, std=(1.0, 1.0, 1.0))(picture(16, 16))
    expected = np.asarray(picture(16, 16)).astype(float) - mean
    np.testing.assert_allclose(result.numpy(), expected.transpose(2, 0, 1), rtol=1e-5, atol=1e-4)


def test_squash_and_shorter_see_different_parts():
    wide = picture(40, 20)
    squashed = Preprocessing(size=20).fit(wide)
    assert squashed.size == (20, 20)
    assert np.abs(np.asarray(squashed)[10, 0, 0].astype(int) - 3) < 4  # the left edge is still there
    middle = Preprocessing(size=20, resize="shorter").fit(wide)
    np.testing.assert_array_equal(np.asarray(middle), np.asarray(wide)[:, 10:30])


def test_a_crop_from_a_larger_square():
    aircraft = Preprocessing(size=14, resize_to=16)
    np.testing.assert_array_equal(np.asarray(aircraft.fit(picture(16, 16))), np.asarray(picture(16, 16))[1:15, 1:15])
    assert Preprocessing(size=448, resize_to=512).at(224) == Preprocessing(size=224, resize_to=256)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "1", "I;16"])
def test_every_mode_becomes_rgb(mode):
    image = Image.new(mode, (9, 7)) if mode == "I;16" else picture(9, 7).convert(mode)
    assert Preprocessing(size=8)(image).shape == (3, 8, 8)


def test_sixteen_bits_are_scaled_and_floats_refused():
    ramp = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    for image in (Image.fromarray(ramp), Image.fromarray(ramp.astype(np.int32))):
        result = np.asarray(Preprocessing(size=8).fit(image))[..., 0].astype(int)
        np.testing.assert_allclose(result, ramp / 257.0, atol=1)
    eight = Image.fromarray(np.arange(64, dtype=np.int32).reshape(8, 8))
    np.testing.assert_array_equal(np.asarray(Preprocessing(size=8).fit(eight))[..., 1], np.arange(64).reshape(8, 8))
    with pytest.raises(ValueError, match="mode F"):
        Preprocessing(size=8)(Image.fromarray(np.ones((8, 8), np.float32)))


@pytest.mark.parametrize("wrong", [np.zeros((8, 8, 3), np.uint8), "photo.jpg", torch.zeros(3, 8, 8)])
def test_other_things_than_pillow_images_are_named(wrong):
    with pytest.raises(TypeError, match=r"expected a Pillow image, got .*PIL\.Image\.open"):
        Preprocessing(size=8)(wrong)


def test_open_image_turns_and_names(tmp_path):
    good, turned, broken = tmp_path / "good.jpg", tmp_path / "turned.jpg", tmp_path / "broken.jpg"
    picture().save(good)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    picture().save(turned, exif=exif)
    broken.write_bytes(good.read_bytes()[:200])
    assert open_image(good).size == (40, 20)
    assert open_image(turned).size == (20, 40)
    with pytest.raises(OSError, match=r"broken\.jpg: expected an image that Pillow can read"):
        open_image(broken)
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(OSError, match=r"text\.png"):
        open_image(tmp_path / "text.png")
    with pytest.raises(FileNotFoundError):
        open_image(tmp_path / "missing.png")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resize": "stretch"}, "unknown resize 'stretch'"),
        ({"interpolation": "cubic"}, "did you mean 'bicubic'"),
        ({"size": 0}, "size >= 1"),
        ({"size": 448, "resize_to": 224}, "resize_to >= size"),
    ],
)
def test_wrong_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing(**options)


def test_what_is_named_like_a_picture_and_is_none(tmp_path):
    postscript = tmp_path / "photo.jpg"  # Pillow would start Ghostscript for it
    postscript.write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(OSError, match=r"photo\.jpg: .*got something else"):
        open_image(postscript)
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(OSError, match="a folder, a pipe or a device"):
        open_image(tmp_path / "pipe.jpg")
    sparse = tmp_path / "sparse.jpg"
    with sparse.open("wb") as file:
        file.truncate(40 * 10**9)
    with pytest.raises(OSError, match=r"a file of 40\.0 GB"):
        open_image(sparse)


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "bmp", "tif", "webp", "jp2", "ppm"])
def test_every_format_that_is_promised_is_read(tmp_path, suffix):
    picture().save(tmp_path / f"p.{suffix}")
    assert open_image(tmp_path / f"p.{suffix}").size == (40, 20)


@pytest.mark.parametrize("resize", ["squash", "shorter"])
@pytest.mark.parametrize("resize_to", [None, 120])
@pytest.mark.parametrize("size", [(200, 160), (150, 240)])
def test_the_place_of_a_box_is_where_it_is_seen(resize, resize_to, size):
    preprocessing = Preprocessing(size=100, resize=resize, resize_to=resize_to)
    box = (60, 70, 110, 120)
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    pixels[box[1] : box[3], box[0] : box[2]] = 255
    seen = np.asarray(preprocessing.fit(Image.fromarray(pixels)))[..., 0] > 127
    columns, rows = np.flatnonzero(seen.any(0)), np.flatnonzero(seen.any(1))
    expected = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    np.testing.assert_allclose(100 * np.array(preprocessing.place(box, size)), expected, atol=1)
    assert preprocessing.place((-50, 0, 1000, 1000), size) == (0, 0, 1, 1)


@pytest.mark.parametrize("options", [{"size": 0}, {"size": 100_000}, {"size": 8, "resize_to": 7}])
def test_a_square_that_cannot_be_is_refused(options):
    with pytest.raises(ValueError, match="expected size >= 1, resize_to >= size, and 8192 pixels at most"):
        Preprocessing(**options)
