#!/usr/bin/env python3
# SPDX-FileCopyrightText: The millrace authors
# SPDX-License-Identifier: Apache-2.0
"""Makes about a hundred images of all kinds, and what Pillow makes of them.

    make_images.py FOLDER

Writes FOLDER/index.txt, a line an image:

    FILE LOSSLESS WIDTH HEIGHT FILTER OUT_WIDTH OUT_HEIGHT LEFT TOP CROP_WIDTH CROP_HEIGHT FLIPPED

WIDTH and HEIGHT are those of the upright image; FILE.whole holds its pixels (RGB, 8 bits); FILE.resized those of the
image resized to OUT_WIDTH x OUT_HEIGHT, FILE.center those of the largest rectangle in the middle with the proportions
224:224 resized to that, and FILE.crop those of torchvision's RandomResizedCrop to 64x48 and RandomHorizontalFlip, with
the rectangle that the line gives. The random numbers of image i are those of millrace::rng(i). Leaves with 77 where
Pillow is not installed.
"""

import math
import pathlib
import random
import struct
import sys
import zlib

try:
    from PIL import Image, ImageDraw
except ImportError:
    sys.exit(77)

FILTERS = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "lanczos": Image.LANCZOS}
MASK = (1 << 64) - 1


class Rng:
    """millrace::rng: xoshiro256** 1.0, its state filled by SplitMix64."""

    def __init__(self, seed):
        self.state = []
        for _ in range(4):
            seed = (seed + 0x9e3779b97f4a7c15) & MASK
            z = seed
            z = ((z ^ (z >> 30)) * 0xbf58476d1ce4e5b9) & MASK
            z = ((z ^ (z >> 27)) * 0x94d049bb133111eb) & MASK
            self.state.append(z ^ (z >> 31))

    def next(self):
        rotate = lambda x, k: ((x << k) | (x >> (64 - k))) & MASK
        s = self.state
        result = (rotate((s[1] * 5) & MASK, 7) * 9) & MASK
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotate(s[3], 45)
        return result

    def uniform(self):
        return (self.next() >> 11) * 2.0 ** -53

    def below(self, bound):
        m = self.next() * bound
        if m & MASK < bound:
            while m & MASK < (2 ** 64 - bound) % bound:
                m = self.next() * bound
        return m >> 64


def get_params(width, height, rng, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3)):
    """torchvision.transforms.RandomResizedCrop.get_params, with its draws from `rng`: (top, left, height, width)."""
    area = height * width
    log_ratio = [math.log(r) for r in ratio]
    for _ in range(10):
        target_area = area * (scale[0] + (scale[1] - scale[0]) * rng.uniform())
        aspect_ratio = math.exp(log_ratio[0] + (log_ratio[1] - log_ratio[0]) * rng.uniform())
        w = int(round(math.sqrt(target_area * aspect_ratio)))
        h = int(round(math.sqrt(target_area / aspect_ratio)))
        if 0 < w <= width and 0 < h <= height:
            i = rng.below(height - h + 1)
            j = rng.below(width - w + 1)
            return i, j, h, w
    in_ratio = float(width) / float(height)
    if in_ratio < min(ratio):
        w = width
        h = int(round(w / min(ratio)))
    elif in_ratio > max(ratio):
        h = height
        w = int(round(h * max(ratio)))
    else:
        w = width
        h = height
    i = (height - h) // 2
    j = (width - w) // 2
    return i, j, h, w


def picture(seed, width, height, mode="RGB"):
    """Coarse and fine noise with edges over it, somewhat as photographs are."""
    r = random.Random(seed)
    channels = len(mode)
    noise = lambda w, h: Image.frombytes(mode, (w, h), r.randbytes(w * h * channels))
    image = noise(3, 3).resize((width, height), Image.BICUBIC)
    for cells, share in ((9, 0.4), (40, 0.2)):
        image = Image.blend(image, noise(cells, cells).resize((width, height), Image.BICUBIC), share)
    draw = ImageDraw.Draw(image)
    colour = lambda: tuple(r.randrange(256) for _ in range(channels)) if channels > 1 else r.randrange(256)
    for _ in range(6):
        x, y = r.randrange(-width // 4, width), r.randrange(-height // 4, height)
        box = [x, y, x + width // 3, y + height // 4]
        (draw.ellipse if r.random() < 0.5 else draw.rectangle)(box, fill=colour())
    return Image.blend(image, noise(width, height), 0.05)


def png(width, height, depth, colour_type, rows, interlaced=False, extra=()):
    """A PNG of `rows`, each a list of samples; of any colour type and depth, which Pillow cannot write all."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour_type]

    def packed(row):
        if depth == 16:
            return b"".join(struct.pack(">H", s) for s in row)
        if depth == 8:
            return bytes(row)
        bits = "".join(format(s, f"0{depth}b") for s in row)
        bits += "0" * (-len(bits) % 8)
        return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))

    def filtered(picked):
        out, before = b"", None
        step = max(1, samples * depth // 8)
        for number, row in enumerate(picked):
            line = packed(row)
            before = before if before is not None else bytes(len(line))
            kind = number % 5
            coded = bytearray()
            for i, value in enumerate(line):
                a = line[i - step] if i >= step else 0
                b = before[i]
                c = before[i - step] if i >= step else 0
                p = a + b - c
                paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
                coded.append((value - (0, a, b, (a + b) // 2, paeth)[kind]) & 255)
            out += bytes([kind]) + bytes(coded)
            before = line
        return out

    def pick(x0, y0, dx, dy):
        return [[s for x in range(x0, width, dx) for s in row[x * samples:(x + 1) * samples]]
                for row in rows[y0::dy]]

    passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    data = b""
    for p in passes if interlaced else ((0, 0, 1, 1),):
        part = pick(*p)
        if part and part[0]:
            data += filtered(part)
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    head = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(chunk(k, b) for k, b in extra) +
            chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


def png_kinds(folder):
    """(file, upright RGB image) of each colour type, depth and order of rows."""
    number = 0
    for colour_type, depths in ((0, (1, 2, 4, 8, 16)), (2, (8, 16)), (3, (1, 2, 4, 8)), (4, (8, 16)), (6, (8, 16))):
        for depth in depths:
            for interlaced in (False, True):
                number += 1
                r = random.Random(1000 + number)
                width, height = r.randrange(20, 90), r.randrange(20, 90)
                extra = []
                if colour_type == 3:
                    palette = r.randbytes(3 << depth)
                    extra = [(b"PLTE", palette), (b"tRNS", bytes(range(1 << depth)))]
                    rows = [[r.randrange(1 << depth) for _ in range(width)] for _ in range(height)]
                    pixels = b"".join(palette[3 * s:3 * s + 3] for row in rows for s in row)
                else:
                    source = picture(number, width, height, {0: "L", 2: "RGB", 4: "LA", 6: "RGBA"}[colour_type]
                                     if colour_type in (0, 2) else {4: "RGB", 6: "RGB"}[colour_type])
                    flat = list(source.tobytes())
                    bands = len(source.getbands())
                    if colour_type in (4, 6):  # alpha of its own, which must not show
                        n = {4: 1, 6: 3}[colour_type]
                        flat = [s for i in range(0, len(flat), bands) for s in flat[i:i + n] + [r.randrange(256)]]
                        bands = n + 1
                    if depth == 16:
                        flat = [s << 8 | r.randrange(256) for s in flat]
                    if depth < 8:
                        flat = [s >> (8 - depth) for s in flat]
                    rows = [flat[y * width * bands:(y + 1) * width * bands] for y in range(height)]
                    eight = [s >> 8 for s in flat] if depth == 16 else [s * 255 // ((1 << depth) - 1) for s in flat] if depth < 8 else flat
                    if bands <= 2:
                        pixels = b"".join(bytes((s, s, s)) for s in eight[::bands])
                    else:
                        pixels = b"".join(bytes(eight[i:i + 3]) for i in range(0, len(eight), bands))
                    if colour_type == 0 and depth == 8:
                        extra = [(b"tRNS", struct.pack(">H", eight[0]))]
                name = f"png-{colour_type}-{depth}-{'interlaced' if interlaced else 'plain'}.png"
                (folder / name).write_bytes(png(width, height, depth, colour_type, rows, interlaced, extra))
                yield name, Image.frombytes("RGB", (width, height), pixels)


def others(folder):
    """(file, whether it is lossless) of what Pillow writes."""
    def exif(orientation):
        e = Image.Exif()
        e[0x0112] = orientation
        return e.tobytes()

    def save(name, image, **how):
        image.save(folder / name, **how)
        return name, not name.endswith(".jpg") and bool(how.get("lossless", name.endswith(".png")))

    r = random.Random(7)
    for i, quality in enumerate((10, 30, 50, 70, 80, 90, 95, 100)):
        for subsampling in (0, 1, 2):
            size = (r.randrange(60, 420), r.randrange(60, 320))
            yield save(f"quality-{quality}-{subsampling}.jpg", picture(i, *size), quality=quality,
                       subsampling=subsampling, progressive=i % 2 == 1)
    yield save("large.jpg", picture(50, 1601, 1203), quality=85)
    yield save("wide.jpg", picture(51, 1300, 333), quality=85, progressive=True)
    yield save("tall.jpg", picture(52, 301, 900), quality=90, subsampling=1)
    for orientation in range(1, 9):
        image = picture(60 + orientation, 173, 121)
        yield save(f"exif-{orientation}.jpg", image, quality=90, exif=exif(orientation))
        yield save(f"exif-{orientation}.png", image, exif=exif(orientation))
        yield save(f"exif-{orientation}.webp", image, lossless=True, exif=exif(orientation))
    for i, size in enumerate(((1, 1), (1, 37), (41, 1), (2, 2), (7, 9), (8, 8), (16, 17), (33, 15))):
        yield save(f"small-{i}.jpg", picture(80 + i, *size), quality=92)
        yield save(f"small-{i}.png", picture(80 + i, *size))
        yield save(f"small-{i}.webp", picture(80 + i, *size), lossless=True)
    for progressive in (False, True):
        yield save(f"grey-{int(progressive)}.jpg", picture(90, 230, 170, "L"), quality=88, progressive=progressive)
        yield save(f"cmyk-{int(progressive)}.jpg", picture(91, 190, 210).convert("CMYK"), quality=93,
                   progressive=progressive)
    for i, quality in enumerate((5, 50, 80, 100)):
        yield save(f"lossy-{quality}.webp", picture(95 + i, 200 + 31 * i, 150 + 17 * i), quality=quality)
    alpha = picture(99, 160, 120)
    alpha.putalpha(picture(98, 160, 120, "L"))
    yield save("alpha-lossy.webp", alpha, quality=80)
    yield save("alpha-lossless.webp", alpha, lossless=True, exact=True)


def upright(path):
    image = Image.open(path)
    orientation = image.getexif().get(0x0112, 1)
    image = image.convert("RGB")
    turn = {2: Image.FLIP_LEFT_RIGHT, 3: Image.ROTATE_180, 4: Image.FLIP_TOP_BOTTOM, 5: Image.TRANSPOSE,
            6: Image.ROTATE_270, 7: Image.TRANSVERSE, 8: Image.ROTATE_90}
    return image.transpose(turn[orientation]) if orientation in turn else image


def main(folder):
    folder = pathlib.Path(folder)
    images = [(name, True, image) for name, image in png_kinds(folder)]
    images += [(name, lossless, upright(folder / name)) for name, lossless in others(folder)]
    sizes = ((64, 48), (100, 100), (31, 57), (224, 224), (90, 20))
    with open(folder / "index.txt", "w") as index:
        for number, (name, lossless, image) in enumerate(images):
            kind = ("bilinear", "bilinear", "bicubic", "lanczos", "bilinear", "nearest")[number % 6]
            size = sizes[number % len(sizes)]
            (folder / (name + ".whole")).write_bytes(image.tobytes())
            (folder / (name + ".resized")).write_bytes(image.resize(size, FILTERS[kind]).tobytes())
            side = min(image.size)
            left, top = (image.width - side) / 2, (image.height - side) / 2
            centre = image.resize((224, 224), Image.BILINEAR, box=(left, top, left + side, top + side))
            (folder / (name + ".center")).write_bytes(centre.tobytes())
            rng = Rng(number)
            i, j, h, w = get_params(*image.size, rng)
            crop = image.crop((j, i, j + w, i + h)).resize((64, 48), Image.BILINEAR)
            flipped = rng.uniform() < 0.5
            if flipped:
                crop = crop.transpose(Image.FLIP_LEFT_RIGHT)
            (folder / (name + ".crop")).write_bytes(crop.tobytes())
            print(name, int(lossless), *image.size, kind, *size, j, i, w, h, int(flipped), file=index)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
