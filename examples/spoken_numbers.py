"""Spoken numbers: a small generated corpus for speech recognition.

Each row is a whole number below 10,000, spelled by the num2words library and spoken by espeak-ng
at a random speed and pitch.  A voice is a variant of espeak-ng with an English accent.  The
variants of training, validation and test are disjoint, so that a test measures voices which were
never heard in training; the accents and the numbers are not.

    python -m weft.examples.spoken_numbers FOLDER

writes `train.tsv`, `valid.tsv` and `test.tsv` with the fields `audio` and `text`, and wav files of
16,000 samples per second.  It needs espeak-ng (`apt install espeak-ng`).
"""

from __future__ import annotations

import io
import subprocess
import sys
import wave
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from ..specs.findings import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

RATE = 16_000
"""Samples per second of the written files."""
ACCENTS = (
    "en-us",
    "en-gb",
    "en-gb-x-rp",
    "en-gb-scotland",
    "en-gb-x-gbclan",
    "en-gb-x-gbcwmd",
    "en-029",
)
VARIANTS = {
    "train": (
        *("m1", "m2", "m3", "m4", "m5", "m6", "f1", "f2", "f3", "f4"),
        *("Alex", "Alicia", "Andy", "Annie", "Denis", "Gene", "Marco", "Mike", "anika", "antonio"),
        *("boris", "david", "ed", "grandma", "john", "linda", "max", "paul", "rob", "steph", "zac"),
    ),
    "valid": ("m8", "Jacky", "victor"),
    "test": ("m7", "f5", "Michael", "belinda", "adam", "shelby"),
}
"""Voice variants of espeak-ng by split; none occurs in two splits."""
SPEEDS = (120, 240)
"""Slowest and fastest speed, in words per minute."""
PITCHES = (25, 75)
"""Lowest and highest pitch, from 0 to 99."""
DIGITS = 4
"""Most digits of a number; each count of digits has the same probability."""


def spelled(number: int) -> str:
    """Return the English words of a number.

    >>> spelled(1042)
    'one thousand and forty two'
    """
    from num2words import num2words  # noqa: PLC0415 - an optional library

    words: str = num2words(number)
    return words.replace("-", " ").replace(",", "")


def speak(text: str, voice: str, speed: int, pitch: int) -> NDArray[np.int16]:
    """Return the samples of a spoken text, at `RATE`.

    Raises:
        InputError: espeak-ng is not installed, or does not know the voice.
    """
    command = ["espeak-ng", "-v", voice, "-s", str(speed), "-p", str(pitch), "--stdout", text]
    try:
        made = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError(
            f"espeak-ng cannot speak: {error}", help="install it: apt install espeak-ng"
        ) from error
    with wave.open(io.BytesIO(made)) as file:
        rate = file.getframerate()
    # The header of a pipe does not tell the number of samples: read what there is.
    data = made[made.index(b"data") + 8 :]
    samples = np.frombuffer(data[: len(data) // 2 * 2], "<i2")
    return resampled(samples, rate, RATE)


def resampled(samples: NDArray[np.int16], rate: int, wanted: int) -> NDArray[np.int16]:
    """Return samples at another rate, without the frequencies that it cannot represent."""
    count = max(1, round(len(samples) * wanted / rate))
    spectrum = np.fft.rfft(samples.astype(np.float64))
    kept = np.zeros(count // 2 + 1, dtype=np.complex128)
    shared = min(len(kept), len(spectrum))
    kept[:shared] = spectrum[:shared]
    found = np.fft.irfft(kept, count) * (count / len(samples))
    return np.clip(np.rint(found), -(1 << 15), (1 << 15) - 1).astype("<i2")


def write_corpus(
    folder: str | Path, *, train: int = 12_000, valid: int = 200, test: int = 600, seed: int = 1
) -> dict[str, int]:
    """Write the manifests of all splits and their wav files; the same for the same arguments.

    Args:
        folder: output folder, created if missing.
        train: number of training rows.
        valid: number of validation rows.
        test: number of test rows.
        seed: seed of the numbers, voices, speeds and pitches.

    Returns:
        The number of rows of each split.

    Raises:
        InputError: espeak-ng or num2words is not installed.
    """
    folder, counts = Path(folder), {"train": train, "valid": valid, "test": test}
    for split, count in counts.items():
        random = Random(f"{seed} {split}")
        (folder / split).mkdir(parents=True, exist_ok=True)
        lines = ["audio\ttext"]
        for row in range(count):
            number = random.randrange(10 ** random.randint(1, DIGITS))
            voice = f"{random.choice(ACCENTS)}+{random.choice(VARIANTS[split])}"
            text, path = spelled(number), f"{split}/{row:05}.wav"
            samples = speak(text, voice, random.randint(*SPEEDS), random.randint(*PITCHES))
            with wave.open(str(folder / path), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(RATE)
                file.writeframes(samples.tobytes())
            lines.append(f"{path}\t{text}")
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return counts


if __name__ == "__main__":
    print(write_corpus(sys.argv[1] if len(sys.argv) > 1 else "outputs/spoken-numbers"))
