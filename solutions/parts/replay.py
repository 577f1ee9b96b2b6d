# %% [markdown]
# ### With real tensors (optional)
#
# Is your solution correct? Set `REPLAY = True`, and it runs on torch.distributed, each rank ($ranks here) a process of
# this machine. Gradients and weights are compared with ordinary training in one process, and every operation is timed. It
# takes from a few seconds to half a minute. Memory and what is sent should agree with the simulation. Time will not:
# the processes share the cores of one machine.

# %%
REPLAY = False
both = None
if REPLAY:
    from drawing import compare
    from lib.replay import replay

    result = replay(out, dtype="float32", warmup=1, steps=3)
    print(result.text())
    both = compare(simulated=result.simulated, measured=result.measured)
both
