/** Parts of names of variables that hold a secret. A variable too many is missing rather than one too few. */
const SECRET_NAME =
  /(?<!ASK)PASS|SECRET|TOKENS?(_|$)|CREDENTIAL|APIKEY|KEYS?(_|$)|(^|_)(PRIVATE|PAT|PW|CREDS?|COOKIES?|AUTH|BEARER|JWT|WEBHOOKS?|DSN|CONNECTION_?STRING|SIGN(ING|ER|ATURE)?|SALT|MNEMONIC)(_|$)|PWD$/i;
/** Names that only look like secrets. */
const HARMLESS_NAME = /^(PWD|OLDPWD|SSH_AUTH_SOCK)$/;
/** A URL with a user and a password, a private key, and tokens of known services, which are the whole value. */
const SECRET_VALUE =
  /:\/\/[^/\s:@]*:[^/\s@]+@|-----BEGIN [A-Z ]*PRIVATE KEY|^(?:(?:sk|rk)[-_]|gh[oprsu]_|github_pat_|glpat-|xox[abeprs]-|AKIA|AIza|npm_|eyJ)[\w.-]{16,}$/;
/** Programs do not reach the network without their proxy. */
const PROXY_NAME = /_proxy$/i;
/** Change what a shell runs, or what a command means. */
const SHELL_NAME = /^(BASH_ENV|ENV|SHELLOPTS|BASHOPTS|CDPATH|GLOBIGNORE|BASH_XTRACEFD|PROMPT_COMMAND|BASH_FUNC_.*)$/;

/** Programs that would wait for a terminal do without. */
const WITHOUT_TERMINAL = {
  TERM: 'dumb',
  PAGER: 'cat',
  GIT_PAGER: 'cat',
  GIT_EDITOR: 'true',
  GIT_TERMINAL_PROMPT: '0',
} as const;

/**
 * What git does for programs whatever a repository says: no hooks, no file system monitor, no pager, and a folder that looks
 * like a bare repository is none, and repositories inside are not looked into. A file in the working folder could name a program otherwise.
 */
const GIT_SETTINGS: readonly (readonly [key: string, value: string])[] = [
  ['safe.bareRepository', 'explicit'],
  ['core.fsmonitor', 'false'],
  ['core.hooksPath', '/dev/null'],
  ['core.pager', 'cat'],
  // A repository inside has filters of its own, which git would run to see whether its files have changed.
  ['diff.ignoreSubmodules', 'dirty'],
  ['diff.submodule', 'short'],
  ['status.submoduleSummary', 'false'],
  ['submodule.recurse', 'false'],
];
const GIT_CONFIG: Readonly<Record<string, string>> = Object.fromEntries([
  ['GIT_CONFIG_COUNT', String(GIT_SETTINGS.length)],
  ...GIT_SETTINGS.flatMap(([key, value], at) => [
    [`GIT_CONFIG_KEY_${at}`, key],
    [`GIT_CONFIG_VALUE_${at}`, value],
  ]),
]);
/** Settings that were meant for another git. They can hold secrets, too. */
const GIT_CONFIG_NAME = /^GIT_CONFIG_(COUNT|PARAMETERS|KEY_\d+|VALUE_\d+)$/;

/** The environment of programs: a given one without what looks like a secret, for use without a terminal. */
export function programEnvironment(env: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const kept = Object.entries(env).filter(
    (entry): entry is [string, string] =>
      entry[1] !== undefined &&
      !isSecret(entry[0], entry[1]) &&
      !SHELL_NAME.test(entry[0]) &&
      !GIT_CONFIG_NAME.test(entry[0]),
  );
  return { ...Object.fromEntries(kept), ...WITHOUT_TERMINAL, ...GIT_CONFIG };
}

function isSecret(name: string, value: string): boolean {
  if (HARMLESS_NAME.test(name)) return false;
  return SECRET_NAME.test(name) || (SECRET_VALUE.test(value) && !PROXY_NAME.test(name));
}
