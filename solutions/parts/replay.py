# %% [markdown]
# ## For real (optional)
#
# The same schedule can run with real tensors on torch.distributed: $ranks processes on this machine, one a rank. The
# gradients and weights are compared with ordinary training in one process, and every operation is timed. It takes
# some seconds, and needs torch: `pip install 'llm-training-puzzles[replay]'`. Say `REPLAY = True` when your solution
# is correct.

# %%
REPLAY = False
both = None
if REPLAY:
    from drawing import compare as compare
    from lib.replay import replay

    result = replay(out, dtype="float32", warmup=1, steps=3)
    print(result.text())
    both = compare(simulated=result.simulated, measured=result.measured)
both
