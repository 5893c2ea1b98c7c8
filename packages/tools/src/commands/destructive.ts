/*
 * Forms that destroy a machine or that survive the run. They are denied at every level of autonomy, so these functions look
 * for the form and not for certainty: `candidates` are all texts that an argument might become.
 */
import path from 'node:path/posix';

const SYSTEM_FOLDERS: ReadonlySet<string> = new Set(
  (
    '/ /bin /boot /dev /etc /home /lib /lib32 /lib64 /libx32 /media /mnt /opt /proc /root /run /sbin /srv /sys /usr /var ' +
    '/usr/bin /usr/lib /usr/lib64 /usr/local /usr/sbin /usr/share /var/lib /var/log ' +
    '/applications /library /private /system /users /volumes'
  ).split(' '),
);

const START_UP_FILES =
  /(^|\/)(\.(bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile|zshrc|zshenv|zprofile|zlogin|zlogout|kshrc|mkshrc|cshrc|tcshrc|login|xprofile|xinitrc|xsessionrc|inputrc|pam_environment)|\.config\/fish\/(config\.fish|conf\.d\/[^/]+|functions\/[^/]+))$|^\/etc\/(profile|bash\.bashrc|bashrc|zshrc|zshenv|environment|(profile\.d|zsh|fish)\/.+)$/;

const DISKS =
  /^\/dev\/((sd|hd|vd|xvd|nvme|mmcblk|loop|md|dm-|ram|sr|zd|nbd|rdisk|disk)[^/]*$|(disk|mapper|block)\/|(mem|kmem|port)$)/;

/** Why writing to this path destroys something. */
export function destructiveWrite(file: string): string | undefined {
  const resolved = resolveText(file);
  if (DISKS.test(resolved)) return `it overwrites the device ${resolved}`;
  if (START_UP_FILES.test(resolved)) return `it changes ${file}, which shells run when they start`;
  if (resolved === '/proc/sysrq-trigger') return 'it makes the kernel act at once';
  return undefined;
}

/** Whether a path is a folder of the system or a home folder, or everything in one. A glob counts if it could match one. */
function isSystemFolder(file: string): boolean {
  if (/^~[^/]*\/*(\.?\*+\/*)?$/.test(file)) return true;
  if (/^~[^/]*\//.test(file)) {
    // ~/.. and above
    return path.normalize(`/home/user/${file.slice(file.indexOf('/') + 1)}`).split('/').length <= 3;
  }
  if (!file.startsWith('/')) return false;
  const resolved = resolveText(file).toLowerCase();
  const folder = resolved.replace(/\/(\*+|\.\*|\.\[.*|\?+)$/, '') || '/';
  if (SYSTEM_FOLDERS.has(folder) || /^\/(home|users)\/[^/]+$/.test(folder)) return true;
  if (!/[*?[{]/.test(folder)) return false;
  const source = folder.replaceAll(/\*+|\?|\[[^\]]*\]|\{[^}]*\}|[$()+.\\^|[\]{}]/g, (part) => {
    if (part === '?') return '[^/]';
    return part.length > 1 || part === '*' ? '[^/]*' : `\\${part}`;
  });
  // Adjacent stars match the same as one, and take exponential time.
  const pattern = new RegExp(`^${source.replaceAll(/(\[\^\/\]\*)+/g, '[^/]*')}$`);
  for (const system of SYSTEM_FOLDERS) if (pattern.test(system)) return true;
  return false;
}

function resolveText(file: string): string {
  if (!file.startsWith('/')) return path.normalize(file);
  let resolved = path.normalize(file);
  for (;;) {
    const next = path.normalize(
      `/${resolved.replace(/^\/\/+/, '/').replace(/^\/proc\/(self|thread-self|\d+|\$\$)(\/task\/\d+)?\/(root|cwd)(?=\/|$)/, '')}`,
    );
    if (next === resolved) break;
    resolved = next;
  }
  return resolved.length > 1 ? resolved.replace(/\/+$/, '') : resolved;
}

/** Why this program with these arguments destroys something. `candidates[i]` is what argument `i` might be. */
export function destructiveProgram(name: string, candidates: readonly (readonly string[])[]): string | undefined {
  const flat = candidates.flat();
  const options = flat.filter((arg) => arg.startsWith('-'));
  const system = flat.find((arg) => isSystemFolder(arg) && !arg.startsWith('-'));
  if (
    /^(mkfs(\..*)?|mke2fs|mkswap|mkdosfs|mkntfs|newfs.*|wipefs|blkdiscard|sgdisk|sfdisk|cfdisk|fdisk|parted|cryptsetup)$/.test(
      name,
    )
  ) {
    return flat.some((arg) => !/^-{1,2}(V|h|l|L|help|version|list)$/.test(arg))
      ? `${name} destroys file systems`
      : undefined;
  }
  const isRecursive = options.some(
    (arg) => /^-[a-z]*r/i.test(arg) || /^--r(ec|ecu|ecur|ecurs|ecursi|ecursiv|ecursive|e)?$/.test(arg),
  );
  switch (name) {
    case 'rm':
    case 'srm':
    case 'trash':
    case 'rimraf':
    case 'del':
      if (options.some((arg) => arg.startsWith('--no-p'))) return `${name} is told not to preserve /`;
      return (isRecursive || name !== 'rm') && system !== undefined ? `it removes ${system}` : undefined;
    case 'chmod':
    case 'chown':
    case 'chgrp':
    case 'setfacl':
    case 'chattr':
    case 'chcon':
      return isRecursive && system !== undefined ? `it changes the permissions of ${system}` : undefined;
    case 'mv':
      return system !== undefined && flat.findLast((arg) => !arg.startsWith('-')) !== system
        ? `it moves ${system} away`
        : undefined;
    case 'rsync':
      return options.some((arg) => arg.startsWith('--del')) && system !== undefined
        ? `it removes files in ${system}`
        : undefined;
    case 'find': {
      const acts = candidates.some(([arg = ''], at) => {
        const program = path.basename(candidates[at + 1]?.[0] ?? '');
        return (
          arg === '-delete' || (/^-(exec|ok)(dir)?$/.test(arg) && /^(rm|shred|unlink|chmod|chown|mv)$/.test(program))
        );
      });
      return acts && system !== undefined ? `it removes or changes everything below ${system}` : undefined;
    }
    case 'dd': {
      const device = flat.find(
        (arg) =>
          arg.startsWith('of=') &&
          /^\/dev\/(?!(null|stdout|stderr|tty|zero|full)$|fd\/)/.test(resolveText(arg.slice(3))),
      );
      return device === undefined ? undefined : `it overwrites the device ${device.slice(3)}`;
    }
    case 'kill':
      return flat.includes('-1') && flat.length > 1 && flat.at(-1) === '-1' ? 'it ends every process' : undefined;
    default:
      return undefined;
  }
}
