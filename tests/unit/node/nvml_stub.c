/* libnvidia-ml.so.1 as a GB10 answers: no memory of its own, processes listed, no GPM.
   STUB_GPM: with GPM, 44 % of a bus of 256 bits. STUB_STUMBLES: the first question for power fails. */
#include <stdlib.h>
#include <string.h>
typedef unsigned int u;
typedef unsigned long long ull;
enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, SMALL = 7, UNKNOWN = 999 };
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
int nvmlDeviceGetPowerUsage(void *d, u *milliwatts) {
  static int asked;
  (void)d; *milliwatts = 62400; return getenv("STUB_STUMBLES") && !asked++ ? UNKNOWN : OK; }
int nvmlDeviceGetTemperature(void *d, u sensor, u *to) { (void)d; (void)sensor; *to = 71; return OK; }
int nvmlDeviceGetClockInfo(void *d, u clock, u *mhz) { (void)d; (void)clock; *mhz = 2398; return OK; }
int nvmlDeviceGetMaxClockInfo(void *d, u clock, u *mhz) { (void)d; *mhz = clock == 2 ? 4266 : 3003; return OK; }
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
struct support { u version, supported; };
struct metric { u id; int result; double value; const char *words[3]; };
struct question { u version, count; int *earlier, *later; struct metric metrics[1]; };
int nvmlGpmQueryDeviceSupport(void *d, struct support *to) {
  (void)d; to->supported = 1; return getenv("STUB_GPM") ? OK : NOT_SUPPORTED; }
int nvmlGpmSampleAlloc(int **to) { *to = calloc(1, sizeof **to); return OK; }
int nvmlGpmSampleGet(void *d, int *to) { static int taken; (void)d; *to = ++taken; return OK; }
int nvmlGpmMetricsGet(struct question *q) {
  if (q->version != 1 || q->count != 1 || q->metrics[0].id != 10) return INVALID;
  if (!*q->earlier || *q->later != *q->earlier + 1) return INVALID; /* one after the other, and both taken */
  q->metrics[0].result = OK; q->metrics[0].value = 44.0; return OK; }
int nvmlDeviceGetMemoryBusWidth(void *d, u *bits) { (void)d; *bits = 256; return getenv("STUB_GPM") ? OK : NOT_SUPPORTED; }
