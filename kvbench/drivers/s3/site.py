"""What every driver of a bucket asks of the site that it is given."""

from __future__ import annotations

from kvbench.drivers import Site
from kvbench.errors import TierError
from kvbench.tiers.bucket import BucketSpace, BucketTier


def bucket_of(site: Site) -> tuple[BucketTier, BucketSpace]:
    """The bucket and this run's prefix in it; TierError when the work space is no such prefix."""
    if not isinstance(site.space, BucketSpace):
        raise TierError(f"--driver s3 measures s3://bucket/prefix, not {site.tier.name}; leave --driver out.")
    return site.space.tier, site.space


def require_no_order(site: Site) -> None:
    """TierError for options that only files can have."""
    if site.settings.published or site.settings.access == "sequential":
        raise TierError(
            "objects have no order and the study's file options do not fit them: leave out --published "
            "and --access sequential for an S3 tier."
        )
