/*
 * What a shell command would do, found by its grammar without running anything.
 *
 * 1. Every program that bash would start is in `programs`, or the command is unclear.
 * 2. A node, an option or an expansion that is not known makes the command unclear. Nothing is ignored.
 * 3. An uncertain branch is taken: the facts of all branches are united.
 */
import path from 'node:path/posix';
import type { CommandFacts } from '@treadle/core/policy';
import {
  forEachChild,
  parse,
  type Assignment,
  type Command,
  type CommandNode,
  type Function as FunctionNode,
  type AndOr,
  type ParsedScript,
  type Pipeline,
  type PipelineNode,
  type Redirection,
  type Statement,
  type SyntaxNode,
  type TestExpression,
  type Word,
} from 'unbash';
import { destructiveProgram, destructiveWrite } from './destructive.ts';
import { MAX_COMMAND_LENGTH } from '../call-limits.ts';
import { analyseProgram } from './programs.ts';
import {
  checkArithmetic,
  checkIndex,
  COMPUTED_FIELD,
  expandWord,
  HOME_VALUE,
  isNumberVariable,
  literalField,
  textOf,
  type Field,
  type WordContext,
} from './words.ts';

export interface CommandOptions {
  /** The folder that the command runs in, absolute. With it globs are matched with files; without it they are unclear. */
  readonly folder?: string;
  /** The shell that runs the command. Some text means different things in `sh`; that is unclear. Default: `bash`. */
  readonly shell?: 'bash' | 'sh';
}

const MAX_DEPTH = 24;
const MAX_STEPS = 5000;
/** Parentheses and braces that are open at the same time. The parser needs long for more. */
const MAX_OPEN = 128;
const MAX_LOOP_VALUES = 64;
const CACHE_SIZE = 256;

/** What a part of a command sees of its surroundings. */
interface Scope {
  /** Folders that it may run in, relative to the one of the command or absolute. Undefined: any folder. */
  folders: readonly (string | undefined)[];
  /** Functions that are defined here for certain. */
  readonly functions: Map<string, FunctionNode>;
  /** Variables that have one known value here for certain. */
  readonly variables: Map<string, string>;
  /** The shell may not be bash. */
  readonly posix: boolean;
  readonly inLoop: boolean;
  /** It runs in the background or beside other commands of a pipeline. */
  readonly isParallel: boolean;
  /** The functions whose bodies are being walked. */
  readonly calling: readonly string[];
  readonly stdin: string | undefined | null;
}

interface Findings {
  readonly programs: Map<string, CommandFacts['programs'][number]>;
  readonly touches: Map<string, CommandFacts['touches'][number]>;
  readonly urls: Set<string>;
  unclear: string | undefined;
  unchecked: string | undefined;
  destructive: string | undefined;
  usedFiles: boolean;
}

/** Finds out what a command would do. */
export function commandFacts(command: string, options: CommandOptions = {}): CommandFacts {
  const key = `${options.shell ?? ''}\0${options.folder ?? ''}\0${command}`;
  const cached = cache.get(key);
  if (cached) {
    cache.delete(key);
    cache.set(key, cached);
    return cached;
  }
  const { facts, usedFiles } = analyse(command, options);
  if (!usedFiles) {
    cache.set(key, facts);
    const [oldest] = cache.keys();
    if (cache.size > CACHE_SIZE && oldest !== undefined) cache.delete(oldest);
  }
  return facts;
}

const cache = new Map<string, CommandFacts>();

function analyse(command: string, options: CommandOptions): { facts: CommandFacts; usedFiles: boolean } {
  const findings: Findings = {
    programs: new Map(),
    touches: new Map(),
    urls: new Set(),
    unclear: undefined,
    unchecked: undefined,
    destructive: undefined,
    usedFiles: false,
  };
  if (command.length > MAX_COMMAND_LENGTH) {
    findings.unchecked = `it has ${command.length} characters, and at most ${MAX_COMMAND_LENGTH} are analysed`;
  } else if (mostOpen(command) > MAX_OPEN) {
    findings.unchecked = 'it is nested too deeply';
  } else {
    const walker = createWalker(findings, options);
    walker.code(command, {
      folders: [''],
      functions: new Map(),
      variables: new Map([['HOME', HOME_VALUE]]),
      posix: options.shell === 'sh',
      inLoop: false,
      isParallel: false,
      calling: [],
      stdin: null,
    });
  }
  const { programs, touches, urls, unclear, unchecked, destructive, usedFiles } = findings;
  const facts: CommandFacts = {
    programs: [...programs.values()],
    touches: [...touches.values()],
    urls: [...urls],
    ...(unclear !== undefined && { unclear }),
    ...(unchecked !== undefined && { unchecked }),
    ...(destructive !== undefined && { destructive }),
  };
  return { facts, usedFiles };
}

function mostOpen(text: string): number {
  let open = 0;
  let most = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === 0x28 || code === 0x7b) most = Math.max(most, ++open);
    else if ((code === 0x29 || code === 0x7d) && open > 0) open--;
  }
  return most;
}

/**
 * Characters that end a word for people but not for the shell, or the other way round, or that hide text. U+FE0F is a part of
 * many pictographs.
 */
const MISLEADING = /(?![\n\t ]|\ufe0f)[\p{Cc}\p{Cf}\p{Z}\p{Default_Ignorable_Code_Point}\u2800]/u;

/** Variables that change which code runs: where programs, libraries, settings and helpers come from. */
const CODE_VARIABLES =
  /^(PATH|LD_\w+|DYLD_\w+|BASH_\w+|ENV|IFS|PS[0-4]|PROMPT_COMMAND|SHELL|SHELLOPTS|BASHOPTS|CDPATH|HOME|GLOBIGNORE|FIGNORE|EXECIGNORE|POSIXLY_CORRECT|GIT_\w+|\w*PAGER|\w*EDITOR|VISUAL|BROWSER|NODE_(OPTIONS|PATH|EXTRA_CA_CERTS|REPL_EXTERNAL_MODULE|TLS_REJECT_UNAUTHORIZED)|PYTHON(?!UNBUFFERED|DONTWRITEBYTECODE|HASHSEED|IOENCODING|UTF8|WARNINGS$)\w+|PERL\w*|RUBY\w*|GEM_\w+|BUNDLE_\w+|LUA_\w+|\w*JAVA_(TOOL_)?OPTIONS|JAVA_HOME|CLASSPATH|MAVEN_OPTS|GRADLE_\w+|SBT_OPTS|(npm_config|NPM_CONFIG|YARN|PNPM|BUN|PIP|UV|POETRY|CONDA|COMPOSER)_\w+|RUSTC\w*|RUSTFLAGS|RUSTDOC\w*|CARGO_\w+|GO(FLAGS|PROXY|ROOT|PATH|TOOLCHAIN|ENV|BIN|NOSUMDB|INSECURE|PRIVATE)|CC|CXX|CPP|LD|AR|AS|MAKEFLAGS|MAKEFILES|MAKE|MFLAGS|GNUMAKEFLAGS|TAR_OPTIONS|RSYNC_RSH|RSYNC_\w+|CVS_RSH|GZIP|LESS\w*|MAN\w*|SSH_\w+|SUDO_\w+|DOCKER_\w+|KUBECONFIG|AWS_\w+|GCONV_PATH|LOCPATH|NLSPATH|TERMINFO\w*|TERMCAP|XDG_\w+|OPENSSL_\w+|SSL_CERT_\w+|CURL_\w+|WGETRC|INPUTRC|HISTFILE|MAIL\w*|(HTTPS?|ALL|FTP|NO)_PROXY|(https?|all|ftp|no)_proxy|RIPGREP_CONFIG_PATH|GREP_\w+|JQ_\w+|FZF_\w+|EXINIT|VIMINIT|MYVIMRC|TMPDIR|HOSTALIASES|RES_OPTIONS|LOCALDOMAIN|PHP\w*|DENO_\w+|TS_NODE_\w+|ESLINT_\w+|WATCH_\w+|R_\w+|JULIA_\w+|QT_\w+|GTK_\w+|MALLOC_\w+|ASAN_OPTIONS)$/;

/** Builtins that start no program and whose other effects are analysed or harmless. They are not reported. */
const HARMLESS: ReadonlySet<string> = new Set(
  ': true false echo printf pwd test [ shift exit return break continue wait jobs times umask type dirs logout getopts suspend'.split(
    ' ',
  ),
);

/** Options of `set` that do not change which programs run. */
const SET_NAMES = /^(errexit|nounset|pipefail|xtrace|noglob|noclobber|verbose|errtrace|functrace|allexport)$/;

const PLAIN_NAME = /^[A-Za-z_]\w*$/;

interface Walker {
  code(source: string, scope: Scope): void;
}

function createWalker(findings: Findings, { folder }: CommandOptions): Walker {
  let depth = 0;
  let steps = 0;
  let assigned: ReadonlyMap<string, readonly string[]> = new Map();
  const spawning = new Map<string, Set<string>>();

  function unclear(reason: string): void {
    findings.unclear ??= reason;
  }

  function unchecked(reason: string): void {
    findings.unchecked ??= reason;
  }

  function destructive(reason: string | undefined): void {
    if (reason !== undefined) findings.destructive ??= reason;
  }

  /** Code that a shell reads from the beginning. */
  function code(source: string, scope: Scope): void {
    if (MISLEADING.test(source)) unclear('it contains control characters or invisible ones');
    const script = parse(source);
    const outer = assigned;
    const { texts, constants } = readAssignments(script);
    assigned = texts;
    const inner = { ...scope, variables: new Map([...scope.variables].filter(([name]) => !texts.has(name))) };
    enter(() => walkScript(script, inner, constants));
    scope.folders = inner.folders;
    assigned = outer;
  }

  function enter(work: () => void): void {
    if (depth >= MAX_DEPTH) {
      unchecked('it is nested too deeply');
      return;
    }
    depth++;
    try {
      work();
    } finally {
      depth--;
    }
  }

  let constantNames: ReadonlySet<string> = new Set();

  function walkScript(script: ParsedScript, scope: Scope, constants?: ReadonlySet<string>): void {
    const outer = constantNames;
    if (constants) constantNames = constants;
    const [error] = script.errors ?? [];
    if (error) unclear(`its syntax is not understood: ${error.message}`);
    walkStatements(script.commands, scope);
    constantNames = outer;
  }

  function walkStatements(statements: readonly Statement[], scope: Scope): void {
    for (const statement of statements) {
      if (++steps > MAX_STEPS) {
        unchecked('it has too many parts');
        return;
      }
      const before = scope.folders;
      const inner = statement.background ? forked(scope, { isParallel: true }) : scope;
      if (statement.command.type === 'AndOr') walkAndOr(statement.command, inner);
      else {
        walkNode(statement.command, inner);
        // A change of the folder may have failed.
        inner.folders = union(before, inner.folders);
      }
    }
  }

  function walkAndOr({ commands, operators }: AndOr, scope: Scope): void {
    const before = scope.folders;
    let isCertain = true;
    for (const [at, command] of commands.entries()) {
      if (at === 0) {
        walkNode(command, scope);
        continue;
      }
      if (operators[at - 1] === '&&') {
        const inner = branch(scope);
        walkNode(command, inner);
        scope.folders = inner.folders;
        isCertain = false;
      } else {
        const inner = branch({ ...scope, folders: union(before, scope.folders) });
        walkNode(command, inner);
        const ends =
          command.type === 'Command' &&
          /^(exit|return)$/.test(command.name?.value ?? '') &&
          !scope.functions.has(command.name?.value ?? '');
        if (!ends) {
          isCertain = false;
          scope.folders = union(scope.folders, inner.folders);
        }
      }
    }
    if (!isCertain) scope.folders = union(before, scope.folders);
  }

  /** A scope whose changes are lost: a subshell, or one side of a pipe. */
  function forked(scope: Scope, changes: Partial<Scope> = {}): Scope {
    return {
      ...scope,
      functions: new Map(scope.functions),
      variables: new Map(scope.variables),
      inLoop: false,
      ...changes,
    };
  }

  /** A scope whose changes are not certain. Changes of the folder are handled by the caller. */
  function branch(scope: Scope, changes: Partial<Scope> = {}): Scope {
    return { ...forked(scope), inLoop: scope.inLoop, ...changes };
  }

  function within(scope: Scope, changes: Partial<Scope>, work: (inner: Scope) => void): void {
    const inner = branch(scope, changes);
    work(inner);
    scope.folders = union(scope.folders, inner.folders);
  }

  function walkNode(node: PipelineNode, scope: Scope): void {
    switch (node.type) {
      case 'Command':
        walkCommand(node, scope);
        return;
      case 'Pipeline':
        walkPipeline(node, scope);
        return;
      case 'Subshell':
        walkStatements(node.body.commands, forked(scope));
        return;
      case 'BraceGroup':
        walkStatements(node.body.commands, scope);
        return;
      case 'If':
        walkStatements(node.clause.commands, scope);
        within(scope, {}, (inner) => walkStatements(node.then.commands, inner));
        for (const { clause, then } of node.elif) {
          within(scope, {}, (inner) => {
            walkStatements(clause.commands, inner);
            walkStatements(then.commands, inner);
          });
        }
        if (node.else) {
          const { commands } = node.else;
          within(scope, {}, (inner) => walkStatements(commands, inner));
        }
        return;
      case 'While':
        if (isEndless(node.clause.commands) && startsWithoutWaiting(node.body.commands))
          destructive('it starts processes in an endless loop (a fork bomb)');
        within(scope, { inLoop: true }, (inner) => {
          walkStatements(node.clause.commands, inner);
          walkStatements(node.body.commands, inner);
        });
        return;
      case 'For':
      case 'Select': {
        setVariable(node.name.value, undefined, scope);
        const values = node.wordlist?.flatMap((word) => expandWord(word, words(scope)));
        const isConstant =
          node.type === 'For' &&
          constantNames.has(node.name.value) &&
          values !== undefined &&
          values.length <= MAX_LOOP_VALUES;
        const known = isConstant ? values.map(({ value, home }) => (home ? undefined : value)) : [];
        if (known.length === 0 || known.includes(undefined)) known.splice(0, Number.POSITIVE_INFINITY, undefined);
        for (const value of known) {
          within(scope, { inLoop: true }, (inner) => {
            if (value !== undefined) inner.variables.set(node.name.value, value);
            walkStatements(node.body.commands, inner);
          });
        }
        return;
      }
      case 'ArithmeticFor':
        if (!node.test && startsWithoutWaiting(node.body.commands))
          destructive('it starts processes in an endless loop (a fork bomb)');
        if (scope.posix) unclear('for (( )) has another meaning in sh than in bash');
        for (const expression of [node.initialize, node.test, node.update]) checkArithmetic(expression, words(scope));
        within(scope, { inLoop: true }, (inner) => walkStatements(node.body.commands, inner));
        return;
      case 'Case':
        expandWord(node.word, words(scope));
        for (const item of node.items) {
          for (const pattern of item.pattern) expandPattern(pattern, scope);
          within(scope, {}, (inner) => walkStatements(item.body.commands, inner));
        }
        return;
      case 'Function':
        walkFunction(node, scope);
        return;
      case 'Redirected': {
        const stdin = walkRedirections(node.redirects, scope);
        const inner: Scope = stdin === null ? scope : { ...scope, stdin };
        walkNode(node.command, inner);
        scope.folders = inner.folders;
        return;
      }
      case 'Coproc':
        if (scope.posix) unclear('coproc has another meaning in sh than in bash');
        setVariable(node.name?.value ?? 'COPROC', undefined, scope);
        if (node.body.type === 'CompoundList') unclear('its syntax is not understood: coproc');
        else walkNode(node.body, forked(scope, { isParallel: true, stdin: undefined }));
        return;
      case 'TestCommand':
        if (scope.posix) unclear('[[ ]] has another meaning in sh than in bash');
        walkTest(node.expression, scope);
        return;
      case 'ArithmeticCommand':
        if (scope.posix) unclear('(( )) has another meaning in sh than in bash');
        checkArithmetic(node.expression, words(scope));
        if (!node.expression && node.body.trim() !== '') unclear('an arithmetic command is not understood');
        return;
      default:
        node satisfies never;
        unclear('it contains something that is not known');
    }
  }

  function walkPipeline({ commands, prefixes }: Pipeline, scope: Scope): void {
    // `time` and `!` before a single command do not make it a pipeline.
    if (prefixes.some(({ type }) => type === 'Time') && scope.posix) reportProgram('time', [], scope);
    if (commands.length === 1) {
      for (const command of commands) walkNode(command, scope);
      return;
    }
    let stdin = scope.stdin;
    for (const command of commands) {
      walkNode(command, forked(scope, { isParallel: true, stdin }));
      stdin = printedText(command, scope);
    }
  }

  /** What a command prints, if that is plain to see. */
  function printedText(command: CommandNode, scope: Scope): string | undefined {
    if (command.type !== 'Command' || command.redirects.length > 0) return undefined;
    const name = command.name?.value;
    if ((name !== 'echo' && name !== 'printf') || scope.functions.has(name)) return undefined;
    const quiet: WordContext = { ...words(scope), visitScript: () => {}, unclear: () => {} };
    const texts = command.args
      .flatMap((arg) => (arg.type === 'Word' ? expandWord(arg, quiet) : [COMPUTED_FIELD]))
      .map(({ value }) => value);
    if (texts.includes(undefined) || texts.some((text) => /[\\%]|^-/.test(text ?? ''))) return undefined;
    return name === 'echo' ? `${texts.join(' ')}\n` : texts.length === 1 ? texts[0] : undefined;
  }

  function walkFunction(node: FunctionNode, scope: Scope): void {
    const name = node.name.value;
    if (node.name.parts) unclear('the name of a function is computed');
    if (node.body.type === 'CompoundList') unclear('its syntax is not understood: function');
    else {
      scope.functions.set(name, node);
      callFunction(name, node, branch(scope, { inLoop: true, stdin: undefined, isParallel: false }));
    }
  }

  function callFunction(name: string, { body }: FunctionNode, scope: Scope): void {
    for (const caller of scope.calling) {
      if (!scope.isParallel) continue;
      const known = spawning.get(caller) ?? new Set();
      spawning.set(caller, known.add(name));
    }
    if (scope.calling.includes(name)) {
      const starts = scope.calling.slice(scope.calling.indexOf(name));
      if (scope.isParallel || starts.some((one) => spawning.get(one)?.has(name)))
        destructive(`the function ${name} starts itself again and again (a fork bomb)`);
      return;
    }
    if (body.type === 'CompoundList') return;
    enter(() => walkNode(body, { ...scope, calling: [...scope.calling, name] }));
  }

  function words(scope: Scope): WordContext {
    const [only] = scope.folders;
    return {
      variables: scope.variables,
      assigned,
      globFolder:
        folder !== undefined && scope.folders.length === 1 && only !== undefined && !only.startsWith('~')
          ? path.resolve(folder, only)
          : undefined,
      posix: scope.posix,
      visitScript(script) {
        if (!script) unclear('a substitution is not understood');
        else enter(() => walkScript(script, forked(scope, { stdin: scope.stdin })));
      },
      unclear,
      assigns: (name) => setVariable(name, undefined, scope),
      usedFiles() {
        findings.usedFiles = true;
      },
    };
  }

  /** A pattern of `case` or `[[ ]]`, which matches text and not files. */
  function expandPattern(pattern: Word, scope: Scope): void {
    expandWord(pattern, {
      ...words(scope),
      globFolder: undefined,
      usedFiles() {},
      unclear(reason) {
        if (!/^it is not known which files|^the pattern |^the brace expansion/.test(reason)) unclear(reason);
      },
    });
  }

  function walkTest(test: TestExpression, scope: Scope): void {
    switch (test.type) {
      case 'TestUnary':
        if (/^-[vR]$/.test(test.operator) && !PLAIN_NAME.test(test.operand.text))
          unclear(`[[ ${test.operator} ]] evaluates a computed name`);
        expandPattern(test.operand, scope);
        return;
      case 'TestBinary':
        for (const operand of [test.left, test.right]) {
          expandPattern(operand, scope);
          if (/^-(eq|ne|lt|le|gt|ge)$/.test(test.operator) && !isNumber(operand.text, scope)) {
            unclear(`[[ ${test.operator} ]] evaluates ${operand.text}, which can run code`);
          }
        }
        return;
      case 'TestLogical':
        for (const operand of test.operands) walkTest(operand, scope);
        return;
      case 'TestNot':
        walkTest(test.operand, scope);
        return;
      case 'TestGroup':
        walkTest(test.expression, scope);
        return;
      default:
        test satisfies never;
        unclear('a test is not known');
    }
  }

  function isNumber(text: string, scope: Scope): boolean {
    const plain = text.replace(/^"(.*)"$/s, '$1');
    const name = /^\$\{?(\w+)\}?$/.exec(plain)?.[1];
    return (
      /^-?\d+$|^\$[#?]$|^\$\{#\w+(\[@\])?\}$/.test(plain) ||
      (name !== undefined && isNumberVariable(name, words(scope)))
    );
  }

  /** Reports paths that are opened. Returns the text on standard input, undefined if it is computed, null if it is not redirected. */
  function walkRedirections(redirections: readonly Redirection[], scope: Scope): string | undefined | null {
    let stdin: string | undefined | null = null;
    for (const redirection of redirections) {
      const isStdin =
        redirection.descriptor === undefined ||
        (redirection.descriptor.type === 'FileDescriptor' && redirection.descriptor.value === 0);
      if (redirection.descriptor?.type === 'FileDescriptorVariable')
        setVariable(redirection.descriptor.name, undefined, scope);
      switch (redirection.type) {
        case 'HereDoc': {
          const { parts, text } = redirection.body;
          const body = parts ? textOf(parts, words(scope)) : text;
          if (isStdin) stdin = body;
          break;
        }
        case 'HereString': {
          const { target } = redirection;
          const text = target && (target.parts ? textOf(target.parts, words(scope)) : target.value);
          if (isStdin) stdin = text === undefined ? undefined : `${text}\n`;
          break;
        }
        case 'Redirect': {
          const { operator, target } = redirection;
          if (!target) {
            unclear('a redirection has no target');
            break;
          }
          const fields = expandWord(target, words(scope));
          if (fields.length !== 1) unclear('a redirection has several targets');
          for (const field of fields) {
            // A number or a dash after & is a descriptor.
            if (operator.endsWith('&') && /^(\d+-?|-)$/.test(field.value ?? '')) continue;
            const network = /^\/dev\/(tcp|udp)\/([^/]+)\/([^/]+)$/.exec(field.value ?? '');
            if (network || /^\/dev\/(tcp|udp)\//.test(field.start)) {
              unclear('a redirection opens a connection');
              if (network) findings.urls.add(`${network[1]}://${network[2]}:${network[3]}`);
              continue;
            }
            if (operator !== '<') touch('write', field, scope);
            if (operator === '<' || operator === '<>') touch('read', field, scope);
          }
          if (operator.startsWith('<') && isStdin) stdin = undefined;
          break;
        }
        default:
          redirection satisfies never;
          unclear('a redirection is not known');
      }
    }
    return stdin;
  }

  function touch(type: 'read' | 'write', field: Field, scope: Scope): void {
    if (type === 'write')
      for (const guess of field.guesses)
        for (const base of scope.folders) destructive(destructiveWrite(joined(base ?? '', guess)));
    if (field.pipe) return;
    const { value } = field;
    if (value === undefined) {
      unclear(`a path that is ${type === 'read' ? 'read' : 'written'} is computed`);
      return;
    }
    if (value === '' || /^\/dev\/(null|zero|full|random|urandom|stdin|stdout|stderr|tty|fd\/\d+)$/.test(value)) return;
    if (field.home && !/^~(\/|$)/.test(value)) {
      unclear(`it is not known which folder ${value} stands for`);
      return;
    }
    const isFree = value.startsWith('/') || field.home;
    for (const base of isFree ? [''] : scope.folders) {
      if (base === undefined) {
        unclear(`it is not known in which folder ${value} is`);
        continue;
      }
      // A quoted tilde is a name like any other.
      const file = !field.home && value.startsWith('~') ? `./${value}` : value;
      const place = joined(base, file);
      findings.touches.set(`${type} ${place}`, { type, path: place });
    }
  }

  function setVariable(name: string, value: string | undefined, scope: Scope): void {
    if (CODE_VARIABLES.test(name)) unclear(`the variable ${name} changes what programs do`);
    if (value !== undefined && constantNames.has(name)) scope.variables.set(name, value);
    else scope.variables.delete(name);
  }

  function walkAssignment({ name, value, index, append }: Assignment, scope: Scope): string | undefined {
    if (index) checkIndex(index, words(scope));
    if (value.type === 'ArrayValue') {
      for (const element of value.elements) {
        expandWord(element, words(scope));
        const key = /^\[([^]*?)\]\+?=/.exec(element.text)?.[1];
        if (key !== undefined && !/^-?\d+$/.test(key))
          unclear(`the index ${key} of an element is evaluated, which can run code`);
      }
      setVariable(name, undefined, scope);
      return undefined;
    }
    const text = value.parts ? textOf(value.parts, words(scope)) : value.value;
    const isKnown = text !== undefined && !append && !index && !value.text.startsWith('~');
    setVariable(name, isKnown ? text : undefined, scope);
    return isKnown ? text : undefined;
  }

  function walkCommand(command: Command, scope: Scope): void {
    // Assignments before a command are only for its environment.
    const assignments = command.prefix.filter((part) => part.type === 'Assignment');
    const inner = command.name ? { ...scope, variables: new Map(scope.variables) } : scope;
    for (const assignment of assignments) walkAssignment(assignment, inner);
    const stdin = walkRedirections(command.redirects, scope);
    if (!command.name) return;
    const fields = expandWord(command.name, words(scope));
    for (const arg of command.args) {
      if (arg.type === 'Word') fields.push(...expandWord(arg, words(scope)));
      else {
        const text = walkAssignment(arg, scope);
        fields.push(
          text === undefined ? { ...COMPUTED_FIELD, start: `${arg.name}=` } : literalField(`${arg.name}=${text}`),
        );
      }
    }
    const [name] = fields;
    if (
      name?.value === undefined &&
      command.name.parts?.[0]?.type === 'SimpleExpansion' &&
      command.name.text === '$0' &&
      scope.isParallel
    ) {
      destructive('the shell starts itself again (a fork bomb)');
    }
    runFields(fields, { ...scope, stdin: stdin === null ? scope.stdin : stdin }, scope);
  }

  /** Runs a command in `scope`. Builtins change `shell`, the scope of the shell, which other programs cannot. */
  function runFields(fields: readonly Field[], scope: Scope, shell: Scope | undefined): void {
    if (++steps > MAX_STEPS) {
      unchecked('it has too many parts');
      return;
    }
    const [first, ...args] = fields;
    if (!first) return;
    const name = first.value;
    if (name === undefined || name === '' || first.pipe) {
      unclear('the name of a program is computed');
      for (const guess of first.guesses) checkDestructive(guess, args, scope);
      return;
    }
    if (shell) {
      const body = shell.functions.get(name);
      if (body) {
        // The positional parameters are computed, so arguments do not change what the body does.
        callFunction(name, body, { ...scope, functions: shell.functions, variables: shell.variables });
        return;
      }
      if (runBuiltin(name, args, scope, shell)) return;
    }
    reportProgram(name, args, scope);
    checkDestructive(name, args, scope);
    enter(() =>
      analyseProgram({
        base: path.basename(name),
        args,
        stdin: scope.stdin,
        read: (field) => touch('read', field, scope),
        write: (field) => touch('write', field, scope),
        url: (url) => findings.urls.add(url),
        unclear,
        variable: (variable) => {
          if (CODE_VARIABLES.test(variable)) unclear(`the variable ${variable} changes what programs do`);
        },
        shell: (field, { posix }) => shellCode(field, forked(scope, { posix, functions: new Map() })),
        run: (command, how = {}) => {
          const inner = forked(scope);
          if (how.inFolder) inner.folders = moved(how.inFolder, scope);
          runFields(command, inner, undefined);
        },
      }),
    );
  }

  function shellCode(field: Field, scope: Scope): void {
    if (field.value !== undefined) {
      const variables = new Map(scope.variables.has('HOME') ? [['HOME', HOME_VALUE]] : []);
      const inner = { ...scope, variables };
      code(field.value, inner);
      scope.folders = inner.folders;
      return;
    }
    unclear('code for a shell is computed');
    for (const guess of field.guesses) if (guess !== '') code(guess, { ...scope, variables: new Map() });
  }

  function reportProgram(name: string, args: readonly Field[], scope: Scope): void {
    if (scope.folders.length !== 1 && name.includes('/') && !name.startsWith('/'))
      unclear(`it is not known in which folder ${name} is`);
    const [base] = scope.folders;
    // A program by a relative path is another one after a change of the folder.
    const shown = name.includes('/') && !/^[/~]/.test(name) && base ? joined(base, name) : name;
    const values = args.map(({ value }) => value);
    findings.programs.set(JSON.stringify([shown, values]), { name: shown, args: values });
  }

  function checkDestructive(name: string, args: readonly Field[], scope: Scope): void {
    const candidates = args.map(({ guesses }) =>
      guesses.flatMap((guess) => [
        guess,
        ...scope.folders.filter((base) => base).map((base) => joined(base ?? '', guess)),
        ...(folder !== undefined && /(^|\/)\.\.(\/|$)/.test(guess)
          ? scope.folders
              .filter((base) => !base?.startsWith('~'))
              .map((base) => path.resolve(folder, base ?? '', guess))
          : []),
      ]),
    );
    destructive(destructiveProgram(path.basename(name), candidates));
  }

  /** Whether it is a builtin. */
  function runBuiltin(name: string, args: readonly Field[], scope: Scope, shell: Scope): boolean {
    const texts = args.map(({ value }) => value);
    switch (name) {
      case 'cd':
      case 'pushd': {
        const options = args.findIndex(({ start }) => !/^-[LPe@]+$|^--$/.test(start));
        const target = options === -1 ? { ...literalField('~'), home: true } : args[options];
        if (!target) return true;
        if (target.value === undefined || /^-|^\+\d/.test(target.value) || (name === 'pushd' && options === -1))
          unclear('it changes to a folder that is not known');
        else {
          touch('read', target, scope);
          if (shell.inLoop && (scope.calling.length > 0 || !/^[/~]/.test(target.value)))
            unclear('it changes the folder in a loop or a function');
        }
        shell.folders = moved(target, scope);
        return true;
      }
      case 'eval': {
        const inner = { ...scope, functions: shell.functions };
        if (texts.includes(undefined)) unclear('eval runs computed code');
        shellCode(texts.includes(undefined) ? joinedFields(args) : literalField(texts.join(' ')), inner);
        shell.folders = union(shell.folders, inner.folders);
        shell.variables.clear();
        return true;
      }
      case 'trap': {
        const [handler, ...signals] = args.filter(({ value }) => value !== '--');
        // It runs at any time, so it must not change the folder.
        if (handler && signals.length > 0 && handler.value !== '-' && handler.value !== '') {
          shellCode(handler, { ...scope, inLoop: true, calling: [...scope.calling, 'trap'] });
        }
        return true;
      }
      case 'exec': {
        let at = 0;
        while (/^-[cla]+$/.test(texts[at] ?? '')) at += texts[at]?.includes('a') ? 2 : 1;
        if (args.length > at) runFields(args.slice(at), scope, undefined);
        return true;
      }
      case 'command':
      case 'builtin': {
        const options = args.findIndex(({ start }) => !/^-[pvV]+$|^--$/.test(start));
        if (args.slice(0, Math.max(options, 0)).some(({ start }) => /[vV]/.test(start)) || options === -1) return true;
        if (args.slice(0, options).some(({ start }) => start.includes('p')))
          unclear('command -p looks for programs elsewhere');
        const rest = args.slice(options);
        const inner = rest[0]?.value;
        // Functions are skipped, builtins are not.
        if (inner === undefined || !runBuiltin(inner, rest.slice(1), scope, shell)) runFields(rest, scope, undefined);
        return true;
      }
      case 'source':
      case '.': {
        reportProgram(name, args, scope);
        const [file] = args;
        if (!file || file.pipe || file.value === undefined || /^\/dev\/|^\/proc\//.test(file.value))
          unclear(`${name} runs computed code`);
        else touch('read', file, scope);
        // The file may define anything.
        shell.variables.clear();
        return true;
      }
      case 'export':
      case 'readonly':
      case 'declare':
      case 'typeset':
      case 'local':
        for (const { start, value } of args) {
          if (value === undefined && !/^\w+=/.test(start)) unclear(`${name} has a computed argument`);
          if (
            /^[-+]/.test(start)
              ? !/^[-+][rxgpaAluFft]+$/.test(start) || /^\+|-\w*[Ff]/.test(start)
              : !/^\w+(=|$)/.test(start)
          )
            unclear(`${name} ${start} is not analysed`);
          const variable = /^(\w+)/.exec(start)?.[1];
          if (variable !== undefined)
            setVariable(
              variable,
              /^\w+=/.test(start) ? value?.slice(variable.length + 1) : shell.variables.get(variable),
              shell,
            );
        }
        return true;
      case 'read':
      case 'mapfile':
      case 'readarray':
      case 'unset':
        for (const { start, value } of args) {
          if (value === undefined || /^-\w*[Cc]/.test(start) || (name === 'unset' && /^-\w*[fn]/.test(start)))
            unclear(`${name} ${start} is not analysed`);
          else if (!/^-|^\w*$/.test(start) && name !== 'read') unclear(`${name} ${start} evaluates a computed name`);
          else if (name === 'read' && start.includes('[')) unclear(`read ${start} evaluates an index`);
          if (PLAIN_NAME.test(start)) setVariable(start, undefined, shell);
        }
        return true;
      case 'set': {
        const end = texts.indexOf('--');
        const options = end === -1 ? args : args.slice(0, end);
        for (const [at, { start, value }] of options.entries()) {
          const known = /^[-+]\w*o$/.test(options[at - 1]?.start ?? '') ? SET_NAMES : /^[-+][aefhuvxCET]*o?$/;
          if (value === undefined || !known.test(start)) unclear('set changes how the shell reads the command');
        }
        return true;
      }
      case 'shopt':
        if (
          !args.every(({ start }) =>
            /^-[sqpu]+$|^(nullglob|globstar|failglob|inherit_errexit|lastpipe|pipefail|nocaseglob|checkwinsize|huponexit)$/.test(
              start,
            ),
          ) ||
          args.some(({ start }) => start === 'nocaseglob' || start === 'globstar' || start === 'nullglob')
        ) {
          unclear('shopt changes how the shell reads the command');
        }
        return true;
      case 'alias':
        if (args.length > 0) unclear('an alias changes what names mean');
        return true;
      case 'let':
      case 'enable':
      case 'hash':
      case 'bind':
      case 'complete':
      case 'compgen':
      case 'history':
      case 'fc':
      case 'popd':
      case 'ulimit':
        if (args.length > 0 || name === 'popd' || name === 'fc') unclear(`${name} is not analysed`);
        return true;
      case 'printf':
      case 'test':
      case '[':
      case 'wait': {
        const at = texts.findIndex((text) => text === '-v' || text === '-R' || (name === 'wait' && text === '-p'));
        if (name === 'printf' && args[0]?.start.startsWith('-v')) {
          const variable = texts[0] === '-v' ? texts[1] : texts[0]?.slice(2);
          if (!PLAIN_NAME.test(variable ?? '')) unclear('printf -v evaluates a computed name');
          else setVariable(variable ?? '', undefined, shell);
        } else if (name === 'wait' && args.some(({ start }) => /^-\w*p/.test(start)))
          unclear('wait -p is not analysed');
        else if (
          name === 'printf'
            ? args[0]?.value === undefined && args.length > 0 && args[0]?.start === ''
            : at !== -1 && !PLAIN_NAME.test(texts[at + 1] ?? '')
        ) {
          unclear(`${name} evaluates a computed name`);
        } else if (
          name !== 'printf' &&
          args.some(({ value, start }) => value === undefined && start === '' && !/^[-=!]/.test(texts[0] ?? '-'))
        ) {
          // An unquoted word could become -v and a name.
          unclear(`an argument of ${name} is computed and could be an option`);
        }
        return true;
      }
      case 'getopts':
        if (PLAIN_NAME.test(texts[1] ?? '')) setVariable(texts[1] ?? '', undefined, shell);
        else unclear('getopts has a computed name');
        return true;
      default:
        return HARMLESS.has(name);
    }
  }

  function moved(target: Field, scope: Scope): (string | undefined)[] {
    const { value, home } = target;
    if (value === undefined || (home && !/^~(\/|$)/.test(value))) return [undefined];
    if (value.startsWith('/') || home) return [value];
    return unique(scope.folders.map((base) => (base === undefined ? undefined : joined(base, value))));
  }

  return { code };
}

function isEndless([only, ...more]: readonly Statement[]): boolean {
  const command = only?.command;
  return more.length === 0 && command?.type === 'Command' && /^(true|:|false)$/.test(command.name?.value ?? '');
}

function startsWithoutWaiting(body: readonly Statement[]): boolean {
  const isWaiting = ({ command, background }: Statement): boolean =>
    !background &&
    (command.type !== 'Command' || /^(wait|sleep|read|break|exit|return)$/.test(command.name?.value ?? ''));
  return body.some(({ background }) => background) && !body.some(isWaiting);
}

function union<T>(a: readonly T[], b: readonly T[]): readonly T[] {
  return a === b ? a : unique([...a, ...b]);
}

function unique<T>(values: readonly T[]): T[] {
  return [...new Set(values)];
}

/** A path seen from a folder. The text stays as it is if the folder is the one of the command. */
function joined(base: string, file: string): string {
  if (base === '' || /^[/~]/.test(file)) return file;
  // `..` is resolved by whoever knows the links.
  return `${base.replace(/\/+$/, '')}/${file}`;
}

function joinedFields(fields: readonly Field[]): Field {
  return { ...COMPUTED_FIELD, guesses: [fields.map(({ value, guesses }) => value ?? guesses.at(-1) ?? '').join(' ')] };
}

/**
 * The variables that code assigns to. A variable is constant if there is a single plain assignment to it in all of the code,
 * so its value is known wherever that assignment has happened.
 */
function readAssignments(script: ParsedScript): { texts: Map<string, string[]>; constants: ReadonlySet<string> } {
  const texts = new Map<string, string[]>();
  const counts = new Map<string, number>();
  let isOpen = false;
  const note = (name: string, text: string | undefined, count = 1): void => {
    counts.set(name, (counts.get(name) ?? 0) + count);
    const known = texts.get(name) ?? [];
    known.push(text ?? '$');
    texts.set(name, known);
  };
  const visit = (node: SyntaxNode): void => {
    if (node.type === 'Assignment') {
      const isPlain = node.value.type === 'Word' && !node.append && !node.index;
      const text = isPlain && node.value.type === 'Word' ? node.value.value : undefined;
      const parts = node.value.type === 'Word' ? node.value.parts : undefined;
      // The result of arithmetic is a number.
      const isNumber = isPlain && parts?.length === 1 && parts[0]?.type === 'ArithmeticExpansion';
      note(node.name, isNumber ? '0' : text, isPlain ? 1 : 2);
    } else if (node.type === 'For' || node.type === 'Select') {
      note(node.name.value, undefined);
      for (const word of node.wordlist ?? []) texts.get(node.name.value)?.push(word.value);
    } else if (
      node.type === 'ParameterExpansion' &&
      node.operation?.type === 'Default' &&
      node.operation.operator.endsWith('=')
    ) {
      note(node.parameter, node.operation.operand.value, 2);
    } else if (node.type === 'ArithmeticWord' && PLAIN_NAME.test(node.value)) counts.set(node.value, 2);
    else if (node.type === 'FileDescriptorVariable') note(node.name, '0', 2);
    else if (node.type === 'Command') {
      const name = node.name?.value ?? '';
      if (
        /^(eval|source|\.|let|trap|getopts|coproc|mapfile|readarray|unset|declare|typeset|local|builtin|command)$/.test(
          name,
        ) ||
        node.name?.parts
      )
        isOpen = true;
      if (name === 'read' || name === 'printf' || name === 'export' || name === 'wait') {
        for (const arg of node.args)
          if (arg.type === 'Word' && /^(-\w*)?[A-Za-z_]\w*$/.test(arg.value) && name !== 'export')
            note(arg.value.replace(/^-v/, ''), undefined, 2);
      }
    }
    forEachChild(node, visit);
  };
  forEachChild(script, visit);
  const constants = isOpen
    ? []
    : [...counts].filter(([name, count]) => count === 1 && name !== 'IFS').map(([name]) => name);
  return { texts, constants: new Set(constants) };
}
