/*
 * A filter of system calls for Linux, as a program of the kernel's packet filter. Calls that only an attack or a debugger
 * needs fail with EPERM. Everything else is decided by namespaces.
 */

interface Numbers {
  /** AUDIT_ARCH_* */
  readonly arch: number;
  readonly clone: number;
  readonly ioctl: number;
  readonly socket: number;
  /** Fail with EPERM. */
  readonly refused: readonly number[];
}

/** The same on every architecture: mounts of new kind, io_uring, pidfd_getfd, mount_setattr. */
const REFUSED_EVERYWHERE = [425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442];
const CLONE3 = 435;

const NUMBERS: Readonly<Partial<Record<string, Numbers>>> = {
  x64: {
    arch: 0xc000003e,
    clone: 56,
    ioctl: 16,
    socket: 41,
    // ptrace, process_vm_readv and _writev, kcmp, add_key, request_key, keyctl, unshare, setns, mount, umount2, pivot_root,
    // chroot, bpf, perf_event_open, userfaultfd, kexec_load, kexec_file_load, init_module, finit_module, delete_module,
    // open_by_handle_at, swapon, swapoff, reboot, acct, quotactl, iopl, ioperm, vhangup
    refused: [
      101, 310, 311, 312, 248, 249, 250, 272, 308, 165, 166, 155, 161, 321, 298, 323, 246, 320, 175, 313, 176, 304, 167,
      168, 169, 163, 179, 172, 173, 153,
    ],
  },
  arm64: {
    arch: 0xc00000b7,
    clone: 220,
    ioctl: 29,
    socket: 198,
    refused: [
      117, 270, 271, 272, 217, 218, 219, 97, 268, 40, 39, 41, 51, 280, 241, 282, 104, 294, 105, 273, 106, 265, 224, 225,
      142, 89, 60, 58,
    ],
  },
};

/** The same calls by their names, for engines that take those. */
const REFUSED_NAMES =
  'ptrace process_vm_readv process_vm_writev kcmp add_key request_key keyctl unshare setns mount umount2 pivot_root chroot bpf perf_event_open userfaultfd kexec_load kexec_file_load init_module finit_module delete_module open_by_handle_at swapon swapoff reboot acct quotactl iopl ioperm vhangup io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount fspick pidfd_getfd mount_setattr'.split(
    ' ',
  );

/** CLONE_NEW*: every kind of namespace that clone can make. */
const NEW_NAMESPACES = 0x7e020000;
/** TIOCSTI and TIOCLINUX put input into a terminal. */
const FAKED_INPUT = [0x5412, 0x541c];
/** AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. Others, such as AF_VSOCK, do not belong to a network namespace. */
const FAMILIES = [1, 2, 10, 16];

const ALLOW = 0x7fff0000;
const EPERM = 0x00050000 | 1;
const ENOSYS = 0x00050000 | 38;

/** Offsets in `struct seccomp_data`; arguments are 64 bits, lower half first. */
const NR = 0;
const ARCH = 4;
const ARGUMENT = (index: number): number => 16 + 8 * index;

/** The filter as bytes; undefined for an architecture whose numbers are not known. */
export function systemCallFilter(architecture: string = process.arch): Buffer | undefined {
  const numbers = NUMBERS[architecture];
  if (!numbers) return undefined;
  const { arch, clone, ioctl, socket, refused } = numbers;
  const program: Instruction[] = [
    load(ARCH),
    skipIf(arch, 1),
    end(ENOSYS),
    load(NR),
    // The second ABI of x86-64 has the same calls with other numbers.
    { code: JUMP_GREATER_OR_EQUAL, yes: 0, no: 1, value: 0x40000000 },
    end(ENOSYS),
    // Its flags are in memory, so it cannot be checked. The C library uses clone if this one does not exist.
    ...endIf(CLONE3, ENOSYS),
    ...[...refused, ...REFUSED_EVERYWHERE].flatMap((number) => endIf(number, EPERM)),
    ...checked(clone, [load(ARGUMENT(0)), { code: JUMP_IF_SET, yes: 0, no: 1, value: NEW_NAMESPACES }, end(EPERM)]),
    ...checked(ioctl, [load(ARGUMENT(1)), ...FAKED_INPUT.flatMap((request) => endIf(request, EPERM))]),
    ...checked(socket, [load(ARGUMENT(0)), ...FAMILIES.flatMap((family) => endIf(family, ALLOW)), end(EPERM)]),
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
      refused(['clone3'], [], 38),
      // One rule for each kind of namespace: an argument is compared with one value.
      ...bitsOf(NEW_NAMESPACES).map((flag) =>
        refused(['clone'], [{ index: 0, value: flag, valueTwo: flag, op: 'SCMP_CMP_MASKED_EQ' }]),
      ),
      ...FAKED_INPUT.map((request) => refused(['ioctl'], [{ index: 1, value: request, op: 'SCMP_CMP_EQ' }])),
      ...otherFamilies.map((family) => refused(['socket'], [{ index: 0, value: family, op: 'SCMP_CMP_EQ' }])),
      refused(['socket'], [{ index: 0, value: lastFamily, op: 'SCMP_CMP_GE' }]),
    ],
  });
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

/** Runs `check` for one system call, which is loaded, and allows it if the check does not end. */
function checked(number: number, check: readonly Instruction[]): readonly Instruction[] {
  return [{ code: JUMP_EQUAL, yes: 0, no: check.length + 1, value: number }, ...check, end(ALLOW)];
}
