"""Models: what is trained or served, knowing nothing of clusters, policies and clocks."""
