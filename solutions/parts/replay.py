# %% [markdown]
# ### With real tensors (optional)
#
# Your schedule also runs for real, on torch.distributed: $ranks ranks, in processes of this machine. Gradients
# and weights are compared with ordinary training in one process, and every operation is timed. It takes a few seconds.
# When your solution is correct, set `REPLAY = True`.
#
# What should agree with the simulation are memory and what is sent. Time will not: on one machine the processes share its
# cores, and a collective can take much longer than 0.3.

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
