"""`python -m nccl_doctor`."""

from nccl_doctor.cli.main import run

if __name__ == "__main__":
    run()
