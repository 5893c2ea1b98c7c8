/** Names of variables that usually hold a secret. */
const SECRET_NAME =
  /(^|_)(API_?KEY|ACCESS_?KEY(_ID)?|PRIVATE_?KEY|PAT|PASS(WD|PHRASE)?|PGPASS|CREDENTIALS?|COOKIES?|AUTH(?!_SOCK)|BEARER|JWT|WEBHOOKS?|DSN|CONNECTION_?STRING)(_|$)|PASSWORD|APIKEY|SECRET|(^|_)TOKENS?(_|$)|AUTHTOKEN|_(KEY|PWD)$/i;
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

/** The environment of programs: a given one without what looks like a secret, for use without a terminal. */
export function programEnvironment(env: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const kept = Object.entries(env).filter(
    (entry): entry is [string, string] =>
      entry[1] !== undefined && !isSecret(entry[0], entry[1]) && !SHELL_NAME.test(entry[0]),
  );
  return { ...Object.fromEntries(kept), ...WITHOUT_TERMINAL };
}

function isSecret(name: string, value: string): boolean {
  return SECRET_NAME.test(name) || (SECRET_VALUE.test(value) && !PROXY_NAME.test(name));
}
