// Exceptions through a chain that burns: before the throw, in a destructor while the stack unwinds, and in the handler.
#include "burn.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

KEEP uint64_t leaf_of_destructor(uint64_t seed)
{
	return burn(seed) + 1;
}

struct Guard {
	uint64_t seed;
	KEEP ~Guard() { sink += leaf_of_destructor(seed); }
};

KEEP uint64_t leaf_that_throws(uint64_t seed)
{
	if (burn(seed) != 0)
		throw std::runtime_error("known");
	return seed;
}

KEEP uint64_t guarded_call(uint64_t seed)
{
	Guard guard{seed};
	return leaf_that_throws(seed) + 1;
}

KEEP uint64_t leaf_of_handler(uint64_t seed)
{
	return burn(seed) + 2;
}

KEEP uint64_t catching_call(uint64_t seed)
{
	try {
		return guarded_call(seed) + 1;
	} catch (const std::exception &error) {
		return leaf_of_handler(seed) + error.what()[0];
	}
}

KEEP bool compare_numbers(int left, int right)
{
	sink += burn(left);
	return left < right;
}

struct Sorter {
	virtual uint64_t sort_numbers(int seed) = 0;
	virtual ~Sorter() = default;
};

struct StandardSorter : Sorter {
	KEEP uint64_t sort_numbers(int seed) override
	{
		std::vector<int> numbers{seed % 7, 3, 2};
		std::sort(numbers.begin(), numbers.end(), compare_numbers);
		return numbers[0];
	}
};

int main(int argc, char **argv)
{
	double end = begin_run(argc, argv);
	StandardSorter standard;
	Sorter *volatile sorter = &standard;
	for (uint64_t i = 0; now_seconds() < end; i++)
		sink += catching_call(i) + sorter->sort_numbers(i);
	return 0;
}
