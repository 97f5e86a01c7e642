/* Takes memory as an engine does that loads: locked, in steps, at a rate.
 * usage: zz-eater GO RATE_MIB LIMIT_MIB      waits for the file GO
 *        zz-eater FLOOR_KIB                  the witness: reads MemAvailable every half millisecond and prints, once it is
 * under the floor, "before_ns before_kib after_ns after_kib": the readings on both sides of it (CLOCK_REALTIME). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const long STEP = 4l << 20;

static long long now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static long available(int meminfo)
{
	char text[512];
	ssize_t size = pread(meminfo, text, sizeof text - 1, 0);
	if (size <= 0)
		exit(4);
	text[size] = 0;
	return atol(strstr(text, "MemAvailable:") + 13);
}

static int witness(long floor)
{
	int meminfo = open("/proc/meminfo", O_RDONLY);
	long last = available(meminfo), left;
	long long last_at = now(CLOCK_REALTIME), at;
	setpriority(PRIO_PROCESS, 0, -20);
	puts("up");
	fflush(stdout);
	for (;; last = left, last_at = at) {
		usleep(500);
		left = available(meminfo);
		at = now(CLOCK_REALTIME);
		if (left < floor)
			return printf("%lld %ld %lld %ld\n", last_at, last, at, left) < 0;
	}
}

int main(int count, char **words)
{
	if (count == 2)
		return witness(atol(words[1]));
	if (count != 4)
		return 2;
	double rate = atof(words[2]) * (1 << 20);
	long limit = atol(words[3]) << 20, taken = 0;
	while (access(words[1], F_OK))
		usleep(2000);
	long long begun = now(CLOCK_MONOTONIC);
	while (taken < limit) {
		void *piece = mmap(NULL, STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (piece == MAP_FAILED || mlock(piece, STEP))
			return 3;
		taken += STEP;
		double early = taken / rate - (now(CLOCK_MONOTONIC) - begun) / 1e9;
		if (early > 0)
			usleep(early * 1e6);
	}
	sleep(4);
	return 6;
}
