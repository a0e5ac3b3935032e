"""What launchers print below the output of a job that failed. They report an end and know no reason."""

RULER = "-" * 74
BOXES = {
    "mpirun-status": f"""{RULER}
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
{RULER}
{RULER}
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[41733,1],1]
  Exit code:    1
{RULER}""",
    "mpirun-signal": f"""{RULER}
mpirun noticed that process rank 1 with PID 0 on node node07 exited on signal 6 (Aborted).
{RULER}""",
    "prte": f"""{RULER}
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-node07-4711@1,1]
   Exit code:    1
{RULER}""",
    "hydra": """===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 4711 RUNNING AT node07
=   EXIT CODE: 1
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================""",
    "torchrun": """torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-03-01_12:00:05
  host      : node07
  rank      : 1 (local_rank: 1)
  exitcode  : -15 (pid: 4712)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 4712
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-03-01_12:00:04
  host      : node07
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 4711)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================""",
    "srun": """srun: error: node07: task 1: Exited with exit code 1
srun: Terminating StepId=4711.0
slurmstepd: error: *** STEP 4711.0 ON node07 CANCELLED AT 2026-03-01T12:00:05 ***
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
srun: error: node08: tasks 2-3: Terminated""",
    "horovodrun": """Horovod detected that one or more processes exited with non-zero status, thus causing the job to be terminated. \
The first process to do so was:
Process name: 1
Exit code: 1""",
    "accelerate": """Traceback (most recent call last):
  File "/usr/local/bin/accelerate", line 8, in <module>
    sys.exit(main())
  File "/usr/local/lib/python3.10/site-packages/accelerate/commands/launch.py", line 688, in simple_launcher
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
subprocess.CalledProcessError: Command '['/usr/bin/python3', 'train.py']' returned non-zero exit status 1.""",
    "deepspeed": """[2026-03-01 12:00:04,101] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 4711
[2026-03-01 12:00:04,220] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py'] exits with return code = 1""",
    "ray": """(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, \
check the logs for the dead worker. RayTask ID: ffffffff Worker ID: 01 Node ID: 02 Worker IP address: 10.0.0.4 Worker port: 10012 \
Worker PID: 4711 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file.
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.""",
    "lightning": "[rank: 1] Child process with PID 4711 terminated with code 1. "
    "Forcefully terminating all other processes to avoid zombies",
    "kubernetes": """Pod train-worker-0 phase Failed: container pytorch terminated with exit code 1 (Error)
command terminated with exit code 1""",
    "shell": """make: *** [Makefile:12: train] Error 1""",
}
