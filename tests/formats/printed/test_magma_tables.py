"""Tables of MAGMA's testers, in the form of testing_dgemm and testing_dgetrf: speeds of each library by size, and failed rows."""

import io

from nccl_doctor.facts.store import Facts
from nccl_doctor.facts.tables import PrintedNumber
from nccl_doctor.formats.printed import printed_numbers

GEMM = """% transA = No transpose, transB = No transpose
%   M     N     K   MAGMA Gflop/s (ms)  cuBLAS Gflop/s (ms)   CPU Gflop/s (ms)  MAGMA error  cuBLAS error
%========================================================================================================
 1088  1088  1088   1964.50 (   1.31)    1473.50 (   1.75)     ---   (  ---  )    2.12e-17        ---    ok
 2112  2112  2112   4011.25 (   4.70)    5220.75 (   3.61)     ---   (  ---  )    1.71e-17        ---    ok
 3136  3136  3136    100.00 ( 616.81)    5820.00 (  10.60)     ---   (  ---  )    1.01e-02        ---    failed
"""


def read(text: str) -> dict[str, PrintedNumber]:
    facts = Facts()
    printed_numbers.read_format(io.BytesIO(text.encode()), "out.txt", facts)
    return {row.name: row for row in facts.rows(PrintedNumber)}


def test_speeds_by_size() -> None:
    rows = read(GEMM)
    assert (2, "Gflop/s", 4011.25, "2112 x 2112 x 2112") == (
        rows["MAGMA"].n,
        rows["MAGMA"].unit,
        rows["MAGMA"].highest,
        rows["MAGMA"].highest_label,
    )
    assert (1, 100.0) == (rows["MAGMA (FAILED)"].n, rows["MAGMA (FAILED)"].last)
    assert 5820.0 == rows["cuBLAS (FAILED)"].last
    assert "CPU" not in rows


def test_damaged_rows_are_left_out() -> None:
    title = GEMM.splitlines(keepends=True)[1]
    assert not read(
        title + " 1088  1088  1088   1964.50 (\n 7 7 7\n\n 1088 1088 1088 --- ( --- ) --- ( --- ) --- ( --- ) ok\n"
    )
    assert not read(
        " 1088  1088  1088   1964.50 (   1.31)    1473.50 (   1.75)   ---   (  ---  )   2.12e-17   ---   ok\n"
    )
