.PHONY: build run test bench format clean
python = .venv/bin/python
set_up = scripts/bootstrap && cmake --build build -j $$(nproc)

build:
	$(set_up)

# What a user runs, without the tests' programs.
run:
	$(set_up) --target motet
	build/motet compare $(RUN_ARGS)

test: build
	ctest --test-dir build -j 2 --output-on-failure && $(python) -m pytest -n 2 --dist loadfile --no-loadscope-reorder tests && $(python) scripts/check_layers.py --self-test && $(python) scripts/check_layers.py && $(python) scripts/check_docs.py && $(python) scripts/bench_tables.py --check && $(python) scripts/readme_table.py --check && $(python) scripts/mutants --check && build/motet experiment report --check

bench:
	$(set_up) --target motet
	build/motet bench attention $(BENCH_ARGS)

format:
	scripts/format

clean:
	rm -rf build build-arm build-asan build-tsan
