"""The numbers of GPUs: use, power, heat and memory, from samples, else from one look at the node."""

_GPU = "coalesce(host || ' ', '') || coalesce('GPU ' || gpu, uuid, 'GPU')"
_SAMPLED = {  # measure -> what it is in `gpu_use`, and its unit; one sample is no share of time
    "gpu_busy": ("iif(samples > 1, 100 * busy_share, NULL)", "%"),
    "gpu_utilisation": ("util_mean", "%"),
    "gpu_power": ("power_median", "W"),
    "gpu_sm_active": ("100 * sm_active", "%"),
    "gpu_temperature": ("temperature_max", "C"),
    "gpu_memory_used": ("memory_max", "MiB"),
}
_LOOKED_AT = {  # the same of a node at one moment, as nvidia-smi without a loop shows it
    "gpu_utilisation": ("util", "%"),
    "gpu_power": ("power", "W"),
    "gpu_temperature": ("temperature", "C"),
    "gpu_memory_used": ("memory_used", "MiB"),
}
# What a job prints of its GPUs before it starts says nothing of their use by it.
_NO_JOB = "NOT EXISTS (SELECT 1 FROM throughput_run) AND NOT EXISTS (SELECT 1 FROM bench_run)"
QUERIES = (
    *(
        f"SELECT '{name}', {value}, '{unit}', 'gpu', {_GPU}, ref FROM gpu_use WHERE {value} IS NOT NULL"
        for name, (value, unit) in _SAMPLED.items()
    ),
    *(
        f"SELECT '{name}', {value}, '{unit}', 'gpu', {_GPU}, ref FROM node_gpu"
        f" WHERE {value} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM gpu_use) AND {_NO_JOB} LIMIT 8192"
        for name, (value, unit) in _LOOKED_AT.items()
    ),
    "SELECT 'process_sm', sm, '%', 'process', coalesce(host || ' ', '') || 'GPU ' || gpu || ' pid ' || pid, ref FROM gpu_process"
    " WHERE sm IS NOT NULL AND gpu IS NOT NULL LIMIT 2000",
    # what joins them
    f"SELECT 'nvlink_rate', speed, 'GB/s', 'gpu', {_GPU.replace(', uuid', '')}, ref FROM nvlink_state WHERE speed > 0 LIMIT 8192",
    "SELECT 'port_rate', rate, 'Gbit/s', 'link', coalesce(host || ' ', '') || hca || iif(port > 1, '/' || port, ''), ref FROM ib_port"
    " WHERE rate > 0 AND state LIKE 'Active%' LIMIT 8192",
)
"""Each yields the columns of `measure` in their order."""
