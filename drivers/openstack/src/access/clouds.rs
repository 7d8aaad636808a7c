//! clouds.yaml, as OpenStack's own tools read it.
