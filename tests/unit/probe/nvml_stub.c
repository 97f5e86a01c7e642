/* libnvidia-ml.so.1 as a GB10 answers: no memory of its own, processes listed, no GPM. */
#include <string.h>
typedef unsigned int u;
typedef unsigned long long ull;
enum { OK = 0, NOT_SUPPORTED = 3, SMALL = 7 };
struct process { u pid; ull memory; u instance, compute; };
static int text(char *to, u size, const char *from) { if (strlen(from) >= size) return SMALL; strcpy(to, from); return OK; }
int nvmlInitWithFlags(u flags) { (void)flags; return OK; }
const char *nvmlErrorString(int error) { return error == NOT_SUPPORTED ? "Not Supported" : "Unknown Error"; }
int nvmlShutdown(void) { return OK; }
int nvmlSystemGetDriverVersion(char *to, u size) { return text(to, size, "580.142"); }
int nvmlDeviceGetCount_v2(u *count) { *count = 1; return OK; }
int nvmlDeviceGetHandleByIndex_v2(u index, void **device) { (void)index; *device = (void *)1; return OK; }
int nvmlDeviceGetName(void *d, char *to, u size) { (void)d; return text(to, size, "NVIDIA GB10"); }
int nvmlDeviceGetUUID(void *d, char *to, u size) { (void)d; return text(to, size, "GPU-0"); }
int nvmlDeviceGetMemoryInfo(void *d, void *to) { (void)d; (void)to; return NOT_SUPPORTED; }
int nvmlDeviceGetUtilizationRates(void *d, u *to) { (void)d; to[0] = 96; to[1] = 0; return OK; }
int nvmlDeviceGetPowerUsage(void *d, u *milliwatts) { (void)d; *milliwatts = 62400; return OK; }
int nvmlDeviceGetTemperature(void *d, u sensor, u *to) { (void)d; (void)sensor; *to = 71; return OK; }
int nvmlDeviceGetClockInfo(void *d, u clock, u *mhz) { (void)d; (void)clock; *mhz = 2398; return OK; }
int nvmlDeviceGetMaxClockInfo(void *d, u clock, u *mhz) { (void)d; (void)clock; *mhz = 3003; return OK; }
int nvmlDeviceGetPerformanceState(void *d, u *to) { (void)d; *to = 0; return OK; }
int nvmlDeviceGetCurrentClocksEventReasons(void *d, ull *to) { (void)d; *to = 0x20; return OK; }
static int list(u *count, struct process *to, u there, const struct process *from) {
  u room = *count; *count = there;
  if (room < there) return SMALL;
  memcpy(to, from, there * sizeof *from); return OK; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, u *count, struct process *to) {
  static const struct process found[] = {{4242, 5000000000ull, 0, 0}, {4243, ~0ull, 0, 0}};
  (void)d; return list(count, to, 2, found); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *d, u *count, struct process *to) {
  static const struct process found[] = {{4242, 18000000ull, 0, 0}};
  (void)d; return list(count, to, 1, found); }
