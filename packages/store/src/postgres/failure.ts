import { messageOf, TreadleError } from '@treadle/core';

/** Errors of PostgreSQL have SQLSTATE codes, those of the network have those of Node. */
interface ReportedError {
  readonly code?: string;
  readonly message?: string;
  readonly syscall?: string;
}

function codeOf(error: unknown): string {
  return String((error as ReportedError | undefined)?.code ?? '');
}

/** The transaction conflicts with another one, and can be repeated. A missing reference: what it used was deleted meanwhile. */
export function isConflict(error: unknown): boolean {
  return ['40001', '40P01', '23503'].includes(codeOf(error));
}

/** What was to be written, or the stored rows that it belongs to, cannot be processed: invalid, too large, contradictory or damaged. */
export function isAboutContent(error: unknown): boolean {
  return /^(22|23|54|XX)...$/.test(codeOf(error));
}

/** A statement waited for a lock for longer than it may. */
export function isLockTimeout(error: unknown): boolean {
  return codeOf(error) === '55P03';
}

/** The connection is lost or cannot be made, or the server is starting, stopping or has no free connection. */
export function isDisconnected(error: unknown): boolean {
  const code = codeOf(error);
  if (code.startsWith('08') || NETWORK.has(code)) return true;
  return code === '' && /connection|timeout|not queryable|ended/i.test(messageOf(error));
}

const NETWORK = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOENT',
  'EAI_AGAIN',
  '57P01',
  '57P02',
  '57P03',
  '57P05',
  '25P03',
  '53300',
]);

/** The server answers, and has no free connection. */
export function isOverloaded(error: unknown): boolean {
  return codeOf(error) === '53300';
}

/** Converts an error of PostgreSQL or of the connection into one that says what to do. It never contains the password. */
export function storeError(error: unknown, location: string): TreadleError {
  if (error instanceof TreadleError) return error;
  const [code, problem] = describeFailure(error);
  return new TreadleError(code, `The store ${location} ${problem}`, { cause: error });
}

type StoreCode = 'store-full' | 'store-read-only' | 'store-locked' | 'store-failed';

function describeFailure(error: unknown): readonly [StoreCode, string] {
  const message = messageOf(error);
  const refusal = describeRefusal(error);
  if (refusal !== undefined) return ['store-failed', `cannot be opened: ${refusal}`];
  const isStandby = codeOf(error) === '55000' && /recovery is in progress/.test(message);
  switch (isStandby ? '25006' : codeOf(error)) {
    case '53100':
    case '53200':
      return ['store-full', `cannot grow: ${message}. Free some space of the database and retry.`];
    case '25006':
      return ['store-read-only', 'cannot be written: the server is read-only. Connect to the primary server.'];
    case '42501':
      return [
        'store-read-only',
        `cannot be used: ${message}. ${
          /database/.test(message) ? 'Give' : 'Connect as the user that owns the schema treadle, or give'
        } this user a schema: "CREATE SCHEMA treadle AUTHORIZATION USER".`,
      ];
    case '28P01':
    case '28000':
      return ['store-failed', `cannot be opened: ${message}. Check user and password.`];
    case '3D000':
      return ['store-failed', `cannot be opened: ${message}. Create the database: "createdb NAME".`];
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return ['store-failed', 'cannot be opened: the host is not known. Check its name.'];
    case '55P03':
    case '57014':
      return ['store-locked', `did not answer in time: ${message}. Retry; if it stays, look for long transactions.`];
    case '53300':
      return ['store-failed', 'has no free connection. Raise max_connections of the server, or use a pooler.'];
    default:
      return isDisconnected(error)
        ? [
            'store-failed',
            `cannot be reached: ${message || codeOf(error)}. Check that PostgreSQL runs there, and retry.`,
          ]
        : ['store-failed', `failed: ${message}.`];
  }
}

/** What is wrong with a password, a certificate or the encryption, as far as codes of PostgreSQL do not say it. */
function describeRefusal(error: unknown): string | undefined {
  const message = messageOf(error);
  if (/password must be a (non-empty )?string/.test(message)) {
    return 'the server asks for a password. Put it into the URL, or into the environment variable PGPASSWORD.';
  }
  if (/does not support SSL/.test(message)) {
    return 'the server accepts no encrypted connections. Turn on ssl in its postgresql.conf, or remove sslmode from the URL.';
  }
  if (/no pg_hba\.conf entry/.test(message)) {
    return `${message}. Let this user in with a line of pg_hba.conf, or encrypt the connection: ?sslmode=verify-full.`;
  }
  if ((error as ReportedError | undefined)?.syscall === 'open') {
    return `${message}. Correct the path in the URL, and let this user read the file.`;
  }
  if (/^ERR_TLS_CERT|CERT|^UNABLE_TO_|^HOSTNAME_MISMATCH$/.test(codeOf(error))) {
    return `${message}. Name the certificate of its authority in the URL, with sslrootcert=FILE, and the host as in the certificate.`;
  }
  return undefined;
}
