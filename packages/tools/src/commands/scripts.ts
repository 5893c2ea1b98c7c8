/* Programs in the languages of sed and awk. They are known only if all that they do is to select, replace and print text. */
import { Unclear } from './words.ts';

/** A regular expression between delimiters. Versions differ in whether a delimiter inside brackets counts, so there is none. */
function pattern(delimiter: string): string {
  const others = String.raw`\][\\${delimiter}\n`;
  return String.raw`(?:[^[\\${delimiter}\n]|\\[^\n]|\[\^?[^^${others}][^${others}]*\])*`;
}

const SUBSTITUTION = [...'/|,#@']
  .map((one) => String.raw`s[${one}]${pattern(one)}[${one}](?:[^\\${one}\n]|\\[^\n])*[${one}][gpIi\d]*`)
  .join('|');
const ADDRESS = String.raw`(?:\d+|\$|/${pattern('/')}/I?)`;
const SED_COMMAND = String.raw`(?:${ADDRESS}(?:,(?:${ADDRESS}|\+\d+))?[ \t]*!?)?[ \t]*(?:[pdq=]|${SUBSTITUTION})`;
const SED = new RegExp(String.raw`^[ \t\n]*${SED_COMMAND}(?:[ \t]*[;\n][ \t\n]*${SED_COMMAND})*[ \t]*;?[ \t\n]*$`);

export function checkSed(name: string, script: string): void {
  if (!SED.test(script)) throw new Unclear(`the script of ${name} is not analysed`);
}

const AWK_WORDS: ReadonlySet<string> = new Set('BEGIN END print printf if else for in while next exit'.split(' '));
const AWK_VARIABLES: ReadonlySet<string> = new Set('NR NF FNR FS OFS RS ORS'.split(' '));
const AWK_FUNCTIONS: ReadonlySet<string> = new Set(
  'if for while print printf length substr split sub gsub match index sprintf tolower toupper int'.split(' '),
);
const AWK_TOKEN =
  /[ \t]+|\n|"(?:[^"\\\n]|\\[^\n])*"|\d+(?:\.\d+)?|(?<name>[A-Za-z_]\w*)(?<called>[ \t]*\()?|&&|\|\||[-+*%^!=<>~$,;:?(){}[\]/]/y;
const AWK_PATTERN = new RegExp(`${pattern('/')}/`, 'y');

export function checkAwk(name: string, program: string): void {
  const unclear = new Unclear(`the program of ${name} is not analysed`);
  /** The last tokens, without blanks. What a slash means depends on them. */
  const tokens = ['\n'];
  /** Names that were assigned before. No reserved word of any version can be, so these are variables. */
  const variables = new Set<string>();
  let hasPrint = false;
  for (let at = 0; at < program.length;) {
    AWK_TOKEN.lastIndex = at;
    const token = AWK_TOKEN.exec(program);
    if (!token) throw unclear;
    at += token[0].length;
    const { name: word, called } = token.groups ?? {};
    if (word !== undefined && !isAwkWord(word, called !== undefined)) throw unclear;
    hasPrint ||= word === 'print' || word === 'printf';
    // After print it would name a file.
    if (token[0] === '>' && hasPrint) throw unclear;
    const last = tokens.at(-1)!;
    if (token[0] === '/' && /^[\n{};(!~,&|]/.test(last)) {
      AWK_PATTERN.lastIndex = at;
      at += AWK_PATTERN.exec(program)?.[0].length ?? Infinity;
      if (at === Infinity) throw unclear;
    } else if (token[0] === '/' && !isAwkValue(last, variables)) throw unclear;
    if (/^[ \t]/.test(token[0])) continue;
    tokens.push(called === undefined ? token[0] : '(');
    const { set, counted } = AWK_ASSIGNED.exec(tokens.slice(-4).join(' '))?.groups ?? {};
    if (set !== undefined && program[at] !== '=') variables.add(set);
    if (counted !== undefined) variables.add(counted);
  }
}

/** Tokens of `n = `, `n += ` or `n++;`. */
const AWK_ASSIGNED = /(?:^| )(?<set>[a-z]\w*) (?:[-+*%^] )?=$|^(?<counted>[a-z]\w*) ([-+]) \3 [;})\n,]$/;

/** `getline` is the only operator that reads a file. */
function isAwkWord(word: string, isCalled: boolean): boolean {
  if (isCalled) return AWK_FUNCTIONS.has(word);
  return AWK_WORDS.has(word) || AWK_VARIABLES.has(word) || (/^[a-z]/.test(word) && word !== 'getline');
}

/** After a value a slash divides. After any other word, such as `do`, a pattern may begin. */
function isAwkValue(token: string, variables: ReadonlySet<string>): boolean {
  return token === ']' || /^\d/.test(token) || AWK_VARIABLES.has(token) || variables.has(token);
}
