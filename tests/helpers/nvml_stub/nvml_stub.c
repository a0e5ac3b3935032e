/* A libnvidia-ml.so.1 for tests, so that the real pynvml runs where there is no GPU.
 *
 * Its answers come from the text file named by $NVML_STUB_FILE, which is read again for every value, or once with
 * $NVML_STUB_KEEP: lines `key=value`, or `N.key=value` for GPU N alone; `key~=N` adds up to N to a number, by chance.
 * `<function>.rc=CODE` makes a function fail, `all.rc` all functions of a GPU, `<function>.hang=1` makes it sleep for ever. Structures with a version are refused unless their size is the one that the
 * public NVML header gives them, so that a wrong layout in a caller shows.
 *
 * Built with -DDRIVER_470 it lacks the functions that drivers of that age lack.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int ret_t;
typedef int *device_t;
typedef unsigned int u32;
typedef unsigned long long u64;

#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define VERSION_MISMATCH 25
#define MOST 64

static int handles[MOST];
static char content[1 << 18];

static int look(const char *key, char *out, size_t size) {
    char wanted[200];
    size_t length;
    if (!content[0] || !getenv("NVML_STUB_KEEP")) {
        const char *name = getenv("NVML_STUB_FILE");
        FILE *file = name ? fopen(name, "r") : NULL;
        if (!file) return 0;
        content[0] = '\n';
        length = fread(content + 1, 1, sizeof content - 2, file);
        fclose(file);
        content[length + 1] = 0;
    }
    snprintf(wanted, sizeof wanted, "\n%s=", key);
    const char *found = strstr(content, wanted);
    if (!found) return 0;
    found += strlen(wanted);
    length = strcspn(found, "\n");
    if (length >= size) length = size - 1;
    memcpy(out, found, length);
    out[length] = 0;
    return 1;
}

static int text_of(device_t device, const char *key, char *out, size_t size) {
    char own[200];
    if (device) {
        snprintf(own, sizeof own, "%d.%s", (int)(device - handles), key);
        if (look(own, out, size)) return 1;
    }
    return look(key, out, size);
}

static u64 number(device_t device, const char *key, u64 otherwise) {
    char text[64];
    char varies[200], most[64];
    if (!text_of(device, key, text, sizeof text)) return otherwise;
    u64 value = text[0] == '-' ? (u64)strtoll(text, NULL, 0) : strtoull(text, NULL, 0);
    snprintf(varies, sizeof varies, "%s~", key);
    return text_of(device, varies, most, sizeof most) ? value + (u64)rand() % (strtoull(most, NULL, 0) + 1) : value;
}

static int known(device_t device, const char *key) {
    char text[64];
    return text_of(device, key, text, sizeof text);
}

static ret_t begin(device_t device, const char *function) {
    char key[200];
    snprintf(key, sizeof key, "%s.hang", function);
    while (number(device, key, 0)) pause();
    snprintf(key, sizeof key, "%s.rc", function);
    return (ret_t)number(device, key, device ? number(device, "all.rc", 0) : 0);
}

#define BEGIN(device) do { ret_t code = begin(device, __func__); if (code) return code; } while (0)
#define VERSIONED(pointer, number) \
    do { if ((pointer)->version != (u32)(sizeof *(pointer) | (number) << 24)) return VERSION_MISMATCH; } while (0)

/* One number of a GPU; without a default the GPU does not support it. */
#define NUMBER(name, type, key) \
    ret_t name(device_t d, type *v) { BEGIN(d); if (!known(d, key)) return NOT_SUPPORTED; *v = (type)number(d, key, 0); return 0; }
#define TEXT(name, key) \
    ret_t name(device_t d, char *v, u32 n) { BEGIN(d); return text_of(d, key, v, n) ? 0 : NOT_SUPPORTED; }
#define SYSTEM_TEXT(name, key) \
    ret_t name(char *v, u32 n) { BEGIN(NULL); return text_of(NULL, key, v, n) ? 0 : NOT_SUPPORTED; }

ret_t nvmlInitWithFlags(u32 flags) { (void)flags; return begin(NULL, "nvmlInit"); }
ret_t nvmlShutdown(void) { return 0; }

const char *nvmlErrorString(ret_t code) {
    switch (code) {
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

SYSTEM_TEXT(nvmlSystemGetDriverVersion, "driver")
SYSTEM_TEXT(nvmlSystemGetNVMLVersion, "nvml")

ret_t nvmlSystemGetCudaDriverVersion(int *v) { BEGIN(NULL); *v = (int)number(NULL, "cuda", 11040); return 0; }

ret_t nvmlDeviceGetCount_v2(u32 *v) { BEGIN(NULL); *v = (u32)number(NULL, "count", 2); return 0; }

ret_t nvmlDeviceGetHandleByIndex_v2(u32 index, device_t *d) {
    if (index >= number(NULL, "count", 2) || index >= MOST) return 2;
    *d = &handles[index];
    return begin(*d, __func__);
}

struct pci { char legacy[16]; u32 domain, bus, device, id, subsystem; char address[32]; };
ret_t nvmlDeviceGetPciInfo_v3(device_t d, struct pci *p) {
    BEGIN(d);
    memset(p, 0, sizeof *p);
    p->domain = (u32)number(d, "domain", 0);
    p->bus = (u32)number(d, "bus", 0x18 + 16 * (u64)(d - handles));
    p->id = 0x233010de;
    snprintf(p->address, sizeof p->address, "%08X:%02X:%02X.0", p->domain, p->bus, p->device);
    return 0;
}

TEXT(nvmlDeviceGetName, "model")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")
NUMBER(nvmlDeviceGetMinorNumber, u32, "minor")
NUMBER(nvmlDeviceGetPerformanceState, u32, "pstate")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, u32, "pcie_width")
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, u32, "pcie_width_max")
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, u32, "pcie_generation")
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, u32, "pcie_generation_max")
NUMBER(nvmlDeviceGetComputeMode, u32, "compute_mode")
NUMBER(nvmlDeviceGetPersistenceMode, u32, "persistence")
NUMBER(nvmlDeviceGetPowerUsage, u32, "power_mw")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, u32, "power_limit_mw")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, u32, "power_default_mw")
NUMBER(nvmlDeviceGetPcieReplayCounter, u32, "pcie_replay")
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, u64, "reasons")

static ret_t clock_of(device_t d, u32 kind, const char *sm, const char *memory, u32 *v) {
    const char *key = kind == 1 ? sm : kind == 2 ? memory : "none";
    if (!known(d, key)) return NOT_SUPPORTED;
    *v = (u32)number(d, key, 0);
    return 0;
}
ret_t nvmlDeviceGetClockInfo(device_t d, u32 k, u32 *v) { BEGIN(d); return clock_of(d, k, "clock_sm", "clock_memory", v); }
ret_t nvmlDeviceGetMaxClockInfo(device_t d, u32 k, u32 *v) { BEGIN(d); return clock_of(d, k, "clock_sm_max", "clock_memory_max", v); }
ret_t nvmlDeviceGetApplicationsClock(device_t d, u32 k, u32 *v) { BEGIN(d); return clock_of(d, k, "clock_app", "none", v); }
ret_t nvmlDeviceGetDefaultApplicationsClock(device_t d, u32 k, u32 *v) { BEGIN(d); return clock_of(d, k, "clock_app_default", "none", v); }

struct pair { u32 first, second; };
ret_t nvmlDeviceGetUtilizationRates(device_t d, struct pair *v) {
    BEGIN(d);
    if (!known(d, "util")) return NOT_SUPPORTED;
    v->first = (u32)number(d, "util", 0);
    v->second = (u32)number(d, "util_memory", 0);
    return 0;
}

ret_t nvmlDeviceGetTemperature(device_t d, u32 sensor, u32 *v) {
    BEGIN(d);
    if (sensor || !known(d, "temperature")) return NOT_SUPPORTED;
    *v = (u32)number(d, "temperature", 0);
    return 0;
}
ret_t nvmlDeviceGetTemperatureThreshold(device_t d, u32 kind, u32 *v) {
    BEGIN(d);
    if (kind != 1 || !known(d, "slowdown")) return NOT_SUPPORTED;
    *v = (u32)number(d, "slowdown", 0);
    return 0;
}

struct memory { u64 total, free, used; };
ret_t nvmlDeviceGetMemoryInfo(device_t d, struct memory *m) {
    BEGIN(d);
    m->total = number(d, "memory_total", 0);
    m->used = number(d, "memory_used", 0) + number(d, "memory_reserved", 0);
    m->free = m->total - m->used;
    return 0;
}
ret_t nvmlDeviceGetBAR1MemoryInfo(device_t d, struct memory *m) {
    BEGIN(d);
    if (!known(d, "bar1_total")) return NOT_SUPPORTED;
    m->total = number(d, "bar1_total", 0);
    m->free = m->total;
    m->used = 0;
    return 0;
}

static ret_t two(device_t d, const char *a, const char *b, u32 *first, u32 *second) {
    if (!known(d, a)) return NOT_SUPPORTED;
    *first = (u32)number(d, a, 0);
    *second = (u32)number(d, b, *first);
    return 0;
}
ret_t nvmlDeviceGetEccMode(device_t d, u32 *now, u32 *later) { BEGIN(d); return two(d, "ecc", "ecc_pending", now, later); }
ret_t nvmlDeviceGetMigMode(device_t d, u32 *now, u32 *later) { BEGIN(d); return two(d, "mig", "mig_pending", now, later); }

ret_t nvmlDeviceGetTotalEccErrors(device_t d, u32 kind, u32 counter, u64 *v) {
    static const char *const keys[2][2] = {{"corrected", "corrected_total"}, {"uncorrected", "uncorrected_total"}};
    BEGIN(d);
    if (kind > 1 || counter > 1 || !known(d, keys[kind][counter])) return NOT_SUPPORTED;
    *v = number(d, keys[kind][counter], 0);
    return 0;
}
ret_t nvmlDeviceGetMemoryErrorCounter(device_t d, u32 kind, u32 counter, u32 place, u64 *v) {
    const char *key = counter ? "sram_uncorrected_total" : "sram_uncorrected";
    BEGIN(d);
    if (kind != 1 || place != 7 || !known(d, key)) return NOT_SUPPORTED;
    *v = number(d, key, 0);
    return 0;
}
ret_t nvmlDeviceGetRemappedRows(device_t d, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
    BEGIN(d);
    if (!known(d, "remapped_uncorrected")) return NOT_SUPPORTED;
    *corrected = (u32)number(d, "remapped_corrected", 0);
    *uncorrected = (u32)number(d, "remapped_uncorrected", 0);
    *pending = (u32)number(d, "remap_pending", 0);
    *failed = (u32)number(d, "remap_failed", 0);
    return 0;
}
struct histogram { u32 max, high, partial, low, none; };
ret_t nvmlDeviceGetRowRemapperHistogram(device_t d, struct histogram *v) {
    BEGIN(d);
    if (!known(d, "remap_banks_none")) return NOT_SUPPORTED;
    memset(v, 0, sizeof *v);
    v->max = 640;
    v->none = (u32)number(d, "remap_banks_none", 0);
    return 0;
}
ret_t nvmlDeviceValidateInforom(device_t d) { BEGIN(d); return number(d, "inforom", 1) ? 0 : 14; }

struct field { u32 id, scope; long long stamp, latency; u32 type; ret_t code; union { double d; u64 u; } value; };
_Static_assert(sizeof(struct field) == 40, "nvmlFieldValue_t");
/* `field.ID` or, for one link, `field.ID.SCOPE`. A field nobody named is not supported, one of a later driver is unknown. */
ret_t nvmlDeviceGetFieldValues(device_t d, int count, struct field *fields) {
    BEGIN(d);
    for (int i = 0; i < count; i++) {
        char key[64], common[64];
        snprintf(key, sizeof key, "field.%u.%u", fields[i].id, fields[i].scope);
        snprintf(common, sizeof common, "field.%u", fields[i].id);
        const char *named = known(d, key) ? key : common;
        fields[i].code = !known(d, named) ? NOT_SUPPORTED : fields[i].id >= number(NULL, "fields", 1000) ? 2 : 0;
        fields[i].type = 3;
        fields[i].value.u = number(d, named, 0);
    }
    return 0;
}

ret_t nvmlDeviceGetNvLinkState(device_t d, u32 link, u32 *v) {
    char key[32];
    BEGIN(d);
    if (link >= number(d, "links", 0)) return NOT_SUPPORTED;
    snprintf(key, sizeof key, "nvlink%u", link);
    *v = (u32)number(d, key, 1);
    return 0;
}
ret_t nvmlDeviceGetPcieThroughput(device_t d, u32 counter, u32 *v) {
    BEGIN(d);
    *v = (u32)number(d, counter ? "pcie_rx_kb" : "pcie_tx_kb", 0);
    return 0;
}
ret_t nvmlDeviceGetTopologyCommonAncestor(device_t d, device_t other, u32 *v) {
    BEGIN(d);
    (void)other;
    *v = (u32)number(d, "level", 50);
    return 0;
}
ret_t nvmlDeviceGetP2PStatus(device_t d, device_t other, u32 cap, u32 *v) {
    char key[32];
    BEGIN(d);
    snprintf(key, sizeof key, "p2p%u.%d", cap, (int)(other - handles));
    *v = (u32)number(d, key, 0);
    return 0;
}

/* `tasks=PID:MIB,PID:MIB`, `graphics=…` */
struct task { u32 pid; u64 used; u32 gpu_instance, compute_instance; };
_Static_assert(sizeof(struct task) == 24, "nvmlProcessInfo_t");
static ret_t tasks(device_t d, const char *key, u32 *count, struct task *found) {
    char text[256], *rest;
    u32 n = 0, room = found ? *count : 0;
    if (!text_of(d, key, text, sizeof text)) text[0] = 0;
    for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest), n++) {
        if (n >= room) continue;
        char *colon = strchr(one, ':');
        found[n].pid = (u32)strtoul(one, NULL, 10);
        found[n].used = colon ? strtoull(colon + 1, NULL, 10) << 20 : ~0ULL;
        found[n].gpu_instance = found[n].compute_instance = ~0u;
    }
    *count = n;
    return n > room ? INSUFFICIENT_SIZE : 0;
}
/* `shares=PID:SM,PID:SM`, in %; `shares_at` is the time of all of them in microseconds */
struct share { u32 pid; u64 at; u32 sm, memory, encoder, decoder; };
_Static_assert(sizeof(struct share) == 32, "nvmlProcessUtilizationSample_t");
ret_t nvmlDeviceGetProcessUtilization(device_t d, struct share *found, u32 *count, u64 since) {
    BEGIN(d);
    char text[256], *rest;
    u32 n = 0, room = found ? *count : 0;
    u64 at = (u64)number(d, "shares_at", 1000000);
    if (!text_of(d, "shares", text, sizeof text)) return NOT_SUPPORTED;
    if (at <= since) { *count = 0; return NOT_FOUND; }
    for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest), n++) {
        if (n >= room) continue;
        char *colon = strchr(one, ':');
        found[n] = (struct share){(u32)strtoul(one, NULL, 10), at, colon ? (u32)strtoul(colon + 1, NULL, 10) : 0, 0, 0, 0};
    }
    *count = n;
    return n > room ? INSUFFICIENT_SIZE : 0;
}

#define TASKS(version) \
    ret_t nvmlDeviceGetComputeRunningProcesses_##version(device_t d, u32 *n, struct task *p) { BEGIN(d); return tasks(d, "tasks", n, p); } \
    ret_t nvmlDeviceGetGraphicsRunningProcesses_##version(device_t d, u32 *n, struct task *p) { BEGIN(d); return tasks(d, "graphics", n, p); }
TASKS(v2)

#ifndef DRIVER_470
TASKS(v3)

ret_t nvmlSystemGetCudaDriverVersion_v2(int *v) { BEGIN(NULL); *v = (int)number(NULL, "cuda", 12040); return 0; }

struct confidential { u32 environment, feature, tools; };
ret_t nvmlSystemGetConfComputeState(struct confidential *v) {
    BEGIN(NULL);
    if (!known(NULL, "confidential")) return NOT_SUPPORTED;
    memset(v, 0, sizeof *v);
    v->feature = (u32)number(NULL, "confidential", 0);
    return 0;
}
ret_t nvmlSystemGetConfComputeGpusReadyState(u32 *v) { BEGIN(NULL); *v = (u32)number(NULL, "ready", 0); return 0; }

struct memory2 { u32 version; u64 total, reserved, free, used; };
ret_t nvmlDeviceGetMemoryInfo_v2(device_t d, struct memory2 *m) {
    BEGIN(d);
    VERSIONED(m, 2);
    m->total = number(d, "memory_total", 0);
    m->reserved = number(d, "memory_reserved", 0);
    m->used = number(d, "memory_used", 0);
    m->free = m->total - m->used - m->reserved;
    return 0;
}

NUMBER(nvmlDeviceGetCurrentClocksEventReasons, u64, "reasons")

struct temperature { u32 version, sensor; int value; };
ret_t nvmlDeviceGetTemperatureV(device_t d, struct temperature *v) {
    BEGIN(d);
    VERSIONED(v, 1);
    if (!known(d, "temperature")) return NOT_SUPPORTED;
    v->value = (int)number(d, "temperature", 0);
    return 0;
}
struct margin { u32 version; int value; };
ret_t nvmlDeviceGetMarginTemperature(device_t d, struct margin *v) {
    BEGIN(d);
    VERSIONED(v, 1);
    if (!known(d, "margin")) return NOT_SUPPORTED;
    v->value = (int)number(d, "margin", 0);
    return 0;
}

struct sram {
    u32 version;
    u64 total_parity, total_secded, total_corrected, parity, secded, corrected, l2, sm, pcie, mcu, other;
    u32 exceeded;
};
ret_t nvmlDeviceGetSramEccErrorStatus(device_t d, struct sram *v) {
    BEGIN(d);
    VERSIONED(v, 1);
    if (!known(d, "sram_threshold")) return NOT_SUPPORTED;
    v->parity = number(d, "sram_uncorrected", 0);
    v->secded = 0;
    v->total_parity = number(d, "sram_uncorrected_total", 0);
    v->total_secded = 0;
    v->exceeded = (u32)number(d, "sram_threshold", 0);
    return 0;
}

struct fabric2 { u32 version; unsigned char cluster[16]; ret_t status; u32 clique, state, health; };
struct fabric3 { u32 version; unsigned char cluster[16]; ret_t status; u32 clique, state, health; unsigned char summary; };
_Static_assert(sizeof(struct fabric2) == 0x24 && sizeof(struct fabric3) == 0x28, "nvmlGpuFabricInfo");
ret_t nvmlDeviceGetGpuFabricInfoV(device_t d, struct fabric3 *v) {
    BEGIN(d);
    if (v->version != (0x24 | 2 << 24) && (number(NULL, "fabric_v2_only", 0) || v->version != (0x28 | 3 << 24)))
        return VERSION_MISMATCH;
    if (!known(d, "fabric_state")) return NOT_SUPPORTED;
    memset(v->cluster, 0, sizeof v->cluster);
    v->cluster[0] = (unsigned char)number(d, "cluster", 0);
    v->status = (ret_t)number(d, "fabric_status", 0);
    v->clique = (u32)number(d, "clique", 0);
    v->state = (u32)number(d, "fabric_state", 0);
    v->health = (u32)number(d, "fabric_health", 0);
    return 0;
}
#endif
