/*
 * Programs in the small languages of sed and awk. They are clear only if all they can do is to print text.
 */

/** Why the script can do more than edit text. Undefined: it cannot. */
export function sedScriptProblem(script: string): string | undefined {
  let at = 0;
  const problem = (what: string): string => `the sed script ${what}`;
  while (at < script.length) {
    at = skip(script, at, /[\s;{}]*/y);
    if (at >= script.length) break;
    if (script[at] === '#') {
      at = skip(script, at, /[^\n]*/y);
      continue;
    }
    const addressed = skipAddresses(script, at);
    if (addressed === undefined) return problem('has an address that is not analysed');
    at = addressed;
    const command = script[at] ?? '';
    at++;
    if (command === '' || command === '{' || command === '}' || 'dDgGhHnNpPxzF='.includes(command)) continue;
    if ('qQlL'.includes(command)) at = skip(script, at, /[ \t]*\d*/y);
    else if (':btT'.includes(command)) at = skip(script, at, /[ \t]*[\w.-]*/y);
    else if ('aic'.includes(command)) at = skip(script, at, /(\\[\s\S]|[^\n\\])*/y);
    else if (command === 's' || command === 'y') {
      const end = skipParts(script, at, 2);
      if (end === undefined) return problem(`has a command "${command}" that is not analysed`);
      at = end;
      if (command === 's') {
        at = skip(script, at, /[gpiIm M\d]*/y);
        if (/[ew]/.test(script[at] ?? '')) return problem('runs commands or writes files');
      }
    } else if ('rRwWe'.includes(command)) return problem('reads or writes files or runs commands');
    else return problem(`has a command "${command}" that is not analysed`);
    at = skip(script, at, /[ \t]*/y);
    if (at < script.length && !/[;\n}#]/.test(script[at] ?? '')) return problem('is not analysed');
  }
  return undefined;
}

function skip(text: string, at: number, pattern: RegExp): number {
  pattern.lastIndex = at;
  return at + (pattern.exec(text)?.[0].length ?? 0);
}

function skipAddresses(script: string, start: number): number | undefined {
  let at: number | undefined = start;
  for (let count = 0; count < 2; count++) {
    const char = script[at];
    if (char === '/') at = skipParts(script, at, 1);
    else if (char === '\\') at = skipParts(script, at + 1, 1);
    else at = skip(script, at, /\$|[+~]?\d+(~\d+)?/y);
    if (at === undefined) return undefined;
    at = skip(script, at, /[IM]*[ \t]*/y);
    if (script[at] !== ',') break;
    at = skip(script, at + 1, /[ \t]*/y);
  }
  return at === undefined ? undefined : skip(script, at, /[! \t]*/y);
}

/** Skips `count` parts that end with the delimiter at `at`. */
function skipParts(script: string, at: number, count: number): number | undefined {
  const delimiter = script[at];
  if (delimiter === undefined || /[\s\\\w;]/.test(delimiter)) return undefined;
  let position = at + 1;
  for (let part = 0; part < count; part++) {
    for (; script[position] !== delimiter; position++) {
      if (position >= script.length) return undefined;
      if (script[position] === '\\') position++;
      else if (script[position] === '[' && part === 0) {
        // Versions of sed differ in whether a delimiter inside brackets counts.
        const close = script.indexOf(']', position + 2);
        if (close === -1 || script.slice(position, close).includes(delimiter)) return undefined;
        position = close;
      }
    }
    position++;
  }
  return position;
}

/** Why the program can do more than print text. Undefined: it cannot. */
export function awkProgramProblem(program: string): string | undefined {
  // Text in quotes is data. A slash may begin a regular expression, in which quotes have no meaning: then nothing is removed.
  const code = program.includes('/') ? program : program.replaceAll(/"(\\.|[^"\\\n])*"/g, '""');
  // A text over several lines could hide where others begin.
  if (/\\\n/.test(program) || (!program.includes('/') && code.replaceAll('""', '').includes('"')))
    return 'the awk program has texts that are not analysed';
  // A number may stand before a name without a blank.
  if (/(?<![A-Za-z_])(system|getline|close|fflush|ARGV|ARGC|ENVIRON|PROCINFO|SYMTAB)\b|@/.test(code)) {
    return 'the awk program runs commands or opens files';
  }
  if (/(?<!\|)\|(?!\|)/.test(code)) return 'the awk program may start a command with a pipe';
  // Only without regular expressions and strings does a semicolon or a brace end a statement for certain. A line end may not.
  const statements = program.includes('/') ? [code] : code.split(/[;{}]/);
  if (statements.some((statement) => /(?<![A-Za-z_])printf?\b[^]*>/.test(statement)))
    return 'the awk program may write files';
  return undefined;
}
