/*
 * A filter of system calls for Linux, as a program of the kernel's packet filter. Calls that only an attack or a debugger
 * needs fail with EPERM. Everything else is decided by namespaces.
 */

interface Numbers {
  /** AUDIT_ARCH_* */
  readonly arch: number;
  readonly clone: number;
  readonly ioctl: number;
  readonly fcntl: number;
  readonly fallocate: number;
  readonly socket: number;
  /** Fail with EPERM. */
  readonly refused: readonly number[];
  /** By their names in `MODE_CALLS`. */
  readonly modes: Readonly<Partial<Record<keyof typeof MODE_CALLS, number>>>;
}

/** System calls that give a file a mode, and which of their arguments it is. `flags`: it counts only for a new file. */
const MODE_CALLS = {
  open: { mode: 2, flags: 1 },
  openat: { mode: 3, flags: 2 },
  creat: { mode: 1 },
  chmod: { mode: 1 },
  fchmod: { mode: 1 },
  fchmodat: { mode: 2 },
  fchmodat2: { mode: 2 },
  mknod: { mode: 1 },
  mknodat: { mode: 2 },
} as const satisfies Readonly<Record<string, { readonly mode: number; readonly flags?: number }>>;

/** S_ISUID and S_ISGID: on the host, a program with them has the rights of its owner, whoever starts it. */
const SETUID_BITS = 0o6000;
/** O_CREAT, and the bit of O_TMPFILE that no other flag has. */
const CREATING_FLAGS = 0o20000100;

/** The same on every architecture: mounts of new kind, io_uring, pidfd_getfd, mount_setattr. */
const REFUSED_EVERYWHERE = [425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442];
/** Their arguments are in memory, so they cannot be checked: clone3, openat2. Programs use older calls if these do not exist. */
const UNCHECKED = { clone3: 435, openat2: 437 };

const NUMBERS: Readonly<Partial<Record<string, Numbers>>> = {
  x64: {
    arch: 0xc000003e,
    clone: 56,
    ioctl: 16,
    fcntl: 72,
    fallocate: 285,
    socket: 41,
    // ptrace, process_vm_readv and _writev, kcmp, add_key, request_key, keyctl, unshare, setns, mount, umount2, pivot_root,
    // chroot, bpf, perf_event_open, userfaultfd, kexec_load, kexec_file_load, init_module, finit_module, delete_module,
    // open_by_handle_at, swapon, swapoff, reboot, acct, quotactl, iopl, ioperm, vhangup, syslog
    refused: [
      101, 310, 311, 312, 248, 249, 250, 272, 308, 165, 166, 155, 161, 321, 298, 323, 246, 320, 175, 313, 176, 304, 167,
      168, 169, 163, 179, 172, 173, 153, 103,
    ],
    modes: {
      open: 2,
      openat: 257,
      creat: 85,
      chmod: 90,
      fchmod: 91,
      fchmodat: 268,
      fchmodat2: 452,
      mknod: 133,
      mknodat: 259,
    },
  },
  arm64: {
    arch: 0xc00000b7,
    clone: 220,
    ioctl: 29,
    fcntl: 25,
    fallocate: 47,
    socket: 198,
    refused: [
      117, 270, 271, 272, 217, 218, 219, 97, 268, 40, 39, 41, 51, 280, 241, 282, 104, 294, 105, 273, 106, 265, 224, 225,
      142, 89, 60, 58, 116,
    ],
    modes: { openat: 56, fchmod: 52, fchmodat: 53, fchmodat2: 452, mknodat: 33 },
  },
};

/** The same calls by their names, for engines that take those. */
const REFUSED_NAMES =
  'ptrace process_vm_readv process_vm_writev kcmp add_key request_key keyctl unshare setns mount umount2 pivot_root chroot bpf perf_event_open userfaultfd kexec_load kexec_file_load init_module finit_module delete_module open_by_handle_at swapon swapoff reboot acct quotactl iopl ioperm vhangup syslog io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount fspick pidfd_getfd mount_setattr'.split(
    ' ',
  );

/** CLONE_NEW*: every kind of namespace that clone can make. */
const NEW_NAMESPACES = 0x7e020000;
/** TIOCSTI and TIOCLINUX put input into a terminal. */
const FAKED_INPUT = [0x5412, 0x541c];
/**
 * FS_IOC_RESVSP, FS_IOC_RESVSP64 and FS_IOC_ZERO_RANGE do what fallocate does: take space without writing to it, so that a disk is full
 * before anybody has looked. Programs write instead.
 */
const RESERVATIONS = [0x40305828, 0x4030582a, 0x40305839];
/**
 * F_SETLEASE and F_SETDELEG: whoever opens the file has to wait then, for up to 45 seconds. That may be Treadle, or with a file of the system,
 * which root owns, everybody.
 */
const LEASES = [1024, 1040];
/** AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. Others, such as AF_VSOCK, do not belong to a network namespace. */
const FAMILIES = [1, 2, 10, 16];

const ALLOW = 0x7fff0000;
const EPERM = 0x00050000 | 1;
const ENOSYS = 0x00050000 | 38;
const EOPNOTSUPP = 0x00050000 | 95;

/** Offsets in `struct seccomp_data`; arguments are 64 bits, lower half first. */
const NR = 0;
const ARCH = 4;
const ARGUMENT = (index: number): number => 16 + 8 * index;

/** The filter as bytes; undefined for an architecture whose numbers are not known. */
export function systemCallFilter(architecture: string = process.arch): Buffer | undefined {
  const numbers = NUMBERS[architecture];
  if (!numbers) return undefined;
  const { arch, clone, ioctl, fcntl, fallocate, socket, refused, modes } = numbers;
  const program: Instruction[] = [
    load(ARCH),
    skipIf(arch, 1),
    end(ENOSYS),
    load(NR),
    // The second ABI of x86-64 has the same calls with other numbers.
    { code: JUMP_GREATER_OR_EQUAL, yes: 0, no: 1, value: 0x40000000 },
    end(ENOSYS),
    ...Object.values(UNCHECKED).flatMap((number) => endIf(number, ENOSYS)),
    ...[...refused, ...REFUSED_EVERYWHERE].flatMap((number) => endIf(number, EPERM)),
    ...endIf(fallocate, EOPNOTSUPP),
    ...checked(clone, [load(ARGUMENT(0)), ...endIfSet(NEW_NAMESPACES, EPERM)]),
    ...checked(ioctl, [
      load(ARGUMENT(1)),
      ...FAKED_INPUT.flatMap((request) => endIf(request, EPERM)),
      ...RESERVATIONS.flatMap((request) => endIf(request, EOPNOTSUPP)),
    ]),
    ...checked(fcntl, [load(ARGUMENT(1)), ...LEASES.flatMap((command) => endIf(command, EPERM))]),
    ...checked(socket, [load(ARGUMENT(0)), ...FAMILIES.flatMap((family) => endIf(family, ALLOW)), end(EPERM)]),
    ...Object.entries(modes).flatMap(([name, number]) => {
      const { mode, flags }: { mode: number; flags?: number } = MODE_CALLS[name as keyof typeof MODE_CALLS];
      const isNew = flags === undefined ? [] : [load(ARGUMENT(flags)), ...endUnlessSet(CREATING_FLAGS, ALLOW)];
      return checked(number, [...isNew, load(ARGUMENT(mode)), ...endIfSet(SETUID_BITS, EPERM)]);
    }),
    end(ALLOW),
  ];
  const bytes = Buffer.alloc(program.length * 8);
  program.forEach(({ code, yes, no, value }, index) => {
    bytes.writeUInt16LE(code, index * 8);
    bytes.writeUInt8(yes, index * 8 + 2);
    bytes.writeUInt8(no, index * 8 + 3);
    bytes.writeUInt32LE(value, index * 8 + 4);
  });
  return bytes;
}

/** The filter as a profile of OCI runtimes. They replace an architecture's numbers by themselves. */
export function ociFilter(): string {
  const refused = (names: readonly string[], args: readonly object[] = [], errnoRet = 1): object => ({
    names,
    action: 'SCMP_ACT_ERRNO',
    errnoRet,
    args,
  });
  const [families, lastFamily] = [FAMILIES, 64];
  const otherFamilies = Array.from({ length: lastFamily }, (_, family) => family).filter(
    (family) => !families.includes(family),
  );
  return JSON.stringify({
    defaultAction: 'SCMP_ACT_ALLOW',
    syscalls: [
      refused(REFUSED_NAMES),
      refused(Object.keys(UNCHECKED), [], 38),
      refused(['fallocate'], [], 95),
      // One rule for each bit: an argument is compared with one value.
      ...bitsOf(NEW_NAMESPACES).map((flag) => refused(['clone'], [hasBit(0, flag)])),
      ...Object.entries(MODE_CALLS).flatMap(([name, { mode, ...more }]) =>
        bitsOf(SETUID_BITS).flatMap((bit) =>
          'flags' in more
            ? bitsOf(CREATING_FLAGS).map((flag) => refused([name], [hasBit(more.flags, flag), hasBit(mode, bit)]))
            : [refused([name], [hasBit(mode, bit)])],
        ),
      ),
      ...[...FAKED_INPUT, ...RESERVATIONS].map((request) =>
        refused(['ioctl'], [{ index: 1, value: request, op: 'SCMP_CMP_EQ' }]),
      ),
      ...LEASES.map((command) => refused(['fcntl'], [{ index: 1, value: command, op: 'SCMP_CMP_EQ' }])),
      ...otherFamilies.map((family) => refused(['socket'], [{ index: 0, value: family, op: 'SCMP_CMP_EQ' }])),
      refused(['socket'], [{ index: 0, value: lastFamily, op: 'SCMP_CMP_GE' }]),
    ],
  });
}

function hasBit(index: number, bit: number): object {
  return { index, value: bit, valueTwo: bit, op: 'SCMP_CMP_MASKED_EQ' };
}

function bitsOf(mask: number): readonly number[] {
  return Array.from({ length: 31 }, (_, bit) => 2 ** bit).filter((flag) => (mask & flag) !== 0);
}

interface Instruction {
  readonly code: number;
  /** How many instructions are skipped. */
  readonly yes: number;
  readonly no: number;
  readonly value: number;
}

const LOAD = 0x20;
const JUMP_EQUAL = 0x15;
const JUMP_GREATER_OR_EQUAL = 0x35;
const JUMP_IF_SET = 0x45;
const RETURN = 0x06;

function load(offset: number): Instruction {
  return { code: LOAD, yes: 0, no: 0, value: offset };
}

function end(value: number): Instruction {
  return { code: RETURN, yes: 0, no: 0, value };
}

function skipIf(value: number, count: number): Instruction {
  return { code: JUMP_EQUAL, yes: count, no: 0, value };
}

function endIf(value: number, verdict: number): readonly Instruction[] {
  return [{ code: JUMP_EQUAL, yes: 0, no: 1, value }, end(verdict)];
}

function endIfSet(bits: number, verdict: number): readonly Instruction[] {
  return [{ code: JUMP_IF_SET, yes: 0, no: 1, value: bits }, end(verdict)];
}

function endUnlessSet(bits: number, verdict: number): readonly Instruction[] {
  return [{ code: JUMP_IF_SET, yes: 1, no: 0, value: bits }, end(verdict)];
}

/** Runs `check` for one system call, which is loaded, and allows it if the check does not end. */
function checked(number: number, check: readonly Instruction[]): readonly Instruction[] {
  return [{ code: JUMP_EQUAL, yes: 0, no: check.length + 1, value: number }, ...check, end(ALLOW)];
}
