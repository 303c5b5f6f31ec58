"""Settings of `vsetune trial gallery`."""

from __future__ import annotations

from pydantic import Field

from vsetune.config.spec.base import Seed, Spec


class GallerySpec(Spec):
    """Queries sampled at random from a split, and the number of retrieved items to show for each."""

    captions: int = Field(8, ge=0, le=200, description="captions drawn as queries")
    images: int = Field(6, ge=0, le=200, description="images drawn as queries")
    top: int = Field(5, ge=1, le=50, description="items shown of a ranking, best first")
    hardest: int = Field(10, ge=0, le=100, description="hardest negatives of the whole split, in each direction")
    written: int = Field(4, ge=0, le=50, description="images with sentences that the network writes, if it does")
    sentences: int = Field(6, ge=1, le=100, description="that were kept shown of each, highest score first")
    corrected: int = Field(4, ge=0, le=50, description="wrong captions that are corrected towards an image")
    seed: Seed = Field(0, description="of the draw")
    thumbnail: int = Field(240, ge=32, le=1024, description="pixels of the longer side of a picture")
