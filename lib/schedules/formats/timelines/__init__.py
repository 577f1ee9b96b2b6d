"""Who did what when: files for Perfetto both ways, traces of torch.profiler; as recordings, and these as orders."""
