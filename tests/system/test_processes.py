"""Calls in worker processes, in order and no more at a time than needed."""

from concurrent.futures import ThreadPoolExecutor

from linfed.system.processes import in_order


def test_no_more_chunks_wait_than_the_workers_need():
    taken = []

    def items():
        for item in range(10**9):
            taken.append(item)
            yield item

    with ThreadPoolExecutor(2) as pool:
        found = in_order(pool, abs, items(), 4)
        assert [next(found) for _ in range(3)] == [0, 1, 2]
        assert len(taken) < 8
        assert list(in_order(pool, abs, [-1, -2, -3], 4)) == [1, 2, 3]
