import { deepCompareStrict, dereference, format, ucs2length, type Schema as Keywords } from '@cfworker/json-schema';
import { stableJson } from '../machine/history.ts';
import type { JsonSchema } from '../model.ts';
import { nextLoopTurn } from '../platform.ts';

/**
 * Whether a part of `text` matches a `pattern` of a JSON Schema: a regular expression of JavaScript with the flag `u`. If it
 * throws, the value is invalid.
 */
export type PatternMatcher = (pattern: string, text: string) => boolean;

/** The default. Some patterns take exponential time. */
export const matchRegExp: PatternMatcher = (pattern, text) => new RegExp(pattern, 'u').test(text);

/** The problems of a value, each with the path of the value that it is about. None: the value is valid. */
export type SchemaCheck = (value: unknown, matches: PatternMatcher) => readonly string[];

/** Prepares the check of values against a JSON Schema (draft 2020-12). The check throws if the schema cannot be used. */
export function schemaCheck(schema: JsonSchema): SchemaCheck {
  const lookup = dereference(schema);
  const tracks = Object.values(lookup).some(
    (one) => typeof one === 'object' && ('unevaluatedProperties' in one || 'unevaluatedItems' in one),
  );
  return (value, matches) => {
    const check = new Check(lookup, tracks, matches);
    try {
      check.isValid(value, schema);
    } finally {
      if (check.steps > FEW_STEPS) pauseAfter(check.steps);
    }
    return check.problems;
  };
}

/** The steps of expensive checks in this turn of the event loop. */
let spentSteps = 0;
/** Set from the first expensive check of a turn. Resolves in the next one. */
let nextTurn: Promise<void> | undefined;
/** What a check should wait for. */
export let pauseOfChecks: Promise<void> | undefined;

/** After many steps, checks pause until the event loop has turned. */
function pauseAfter(steps: number): void {
  nextTurn ??= nextLoopTurn().then(() => {
    spentSteps = 0;
    nextTurn = pauseOfChecks = undefined;
  });
  if ((spentSteps += steps) > MAX_STEPS_UNTIL_PAUSE) pauseOfChecks = nextTurn;
}

/** The keys or indices of a value that keywords have evaluated, for `unevaluatedProperties` and `unevaluatedItems`. */
type Evaluated = Set<string | number> | undefined;
type Subschema = Keywords | boolean;

/** A value with very many problems is described by the first ones. */
const MAX_PROBLEMS = 1_000;

/** The work of a check, in steps of up to 0.1 us. A long list in a schema is compared with each of many values. */
const MAX_STEPS = 4_000_000;
/** They take some milliseconds. */
const MAX_STEPS_UNTIL_PAUSE = 200_000;
/** A check that takes no more is as cheap as what else is done for a call. */
const FEW_STEPS = 10_000;
/** The steps of a schema that applies to a value, or of a keyword that takes as long. */
const SCHEMA_STEPS = 8;

/** The check of one value. */
class Check {
  readonly problems: string[] = [];
  readonly #path: (string | number)[] = [];
  readonly #lookup: ReturnType<typeof dereference>;
  readonly #tracks: boolean;
  readonly #matches: PatternMatcher;
  /**
   * Which values fit the schemas that references name, with what the schema has evaluated. Schemas that refer to each other can
   * apply to a value exponentially often. Other schemas apply only as often as the one around them.
   */
  readonly #known = new Map<Subschema, Map<unknown, Evaluated | boolean>>();
  /** Above 0: a test whose problems are dropped. */
  #tests = 0;
  steps = 0;

  constructor(lookup: ReturnType<typeof dereference>, tracks: boolean, matches: PatternMatcher) {
    this.#lookup = lookup;
    this.#tracks = tracks;
    this.#matches = matches;
  }

  isValid(value: unknown, schema: Subschema, evaluated?: Evaluated): boolean {
    this.#spend(SCHEMA_STEPS);
    if (typeof schema === 'boolean') return schema || this.#fail('is not expected here');
    const type = typeOf(value);
    const seen = this.#tracks ? (evaluated ?? new Set()) : undefined;
    const fits = [this.#checkReferences(value, schema, seen), this.#checkKind(value, type, schema)];
    fits.push(this.#checkCombinations(value, schema, seen));
    if (type === 'object') fits.push(this.#checkObject(value as JsonSchema, schema, seen));
    else if (type === 'array') fits.push(this.#checkList(value as readonly unknown[], schema, seen));
    else if (type === 'number') fits.push(this.#checkNumber(value as number, schema));
    else if (type === 'string') fits.push(this.#checkText(value as string, schema));
    return fits.every(Boolean);
  }

  #spend(steps: number): void {
    if ((this.steps += steps) > MAX_STEPS) throw new Error('it takes too many steps');
  }

  #fail(problem: string | (() => string)): false {
    this.#spend(1);
    if (!this.#collects()) return false;
    const text = typeof problem === 'string' ? problem : problem();
    this.#spend(text.length >> 3);
    this.problems.push(this.#located(text));
    return false;
  }

  #collects(): boolean {
    return this.#tests === 0 && this.problems.length < MAX_PROBLEMS;
  }

  #located(problem: string): string {
    return this.#path.length === 0 ? problem : `${this.#path.join('.')}: ${problem}`;
  }

  /** `problem` is a function where most values are valid, because it costs more than the test. */
  #require(isFit: boolean, problem: () => string): boolean {
    return isFit || this.#fail(problem);
  }

  /** A keyword that is absent requires nothing. */
  #limit(limit: number | undefined, isFit: (limit: number) => boolean, problem: (limit: number) => string): boolean {
    return limit === undefined || isFit(limit) || this.#fail(() => problem(limit));
  }

  /** Checks a member of the value. */
  #isMemberValid(member: unknown, key: string | number, schema: Subschema): boolean {
    this.#path.push(key);
    const isValid = this.isValid(member, schema);
    this.#path.pop();
    return isValid;
  }

  /** Checks the value itself against a further schema. What that evaluates counts only if the value is valid. */
  #isAlsoValid(value: unknown, schema: Subschema, seen: Evaluated): boolean {
    const own: Evaluated = seen && new Set();
    const isValid = this.isValid(value, schema, own);
    if (isValid) this.#addSeen(own, seen);
    return isValid;
  }

  #addSeen(own: Evaluated, seen: Evaluated): void {
    if (!own) return;
    this.#spend(own.size);
    for (const key of own) seen!.add(key);
  }

  /** Drops the problems of `test`, because they do not make the value invalid. */
  #tries(test: () => boolean): boolean {
    const before = this.problems.length;
    this.#tests++;
    const isFit = test();
    this.#tests--;
    this.problems.length = before;
    return isFit;
  }

  /** Puts `problem` before the problems of `test`, or drops them if the value passes it. */
  #explained(problem: string | (() => string), test: () => boolean): boolean {
    const before = this.problems.length;
    if (before < MAX_PROBLEMS) this.problems.push('');
    const isFit = test();
    if (isFit) this.problems.length = before;
    else if (before < MAX_PROBLEMS) {
      this.problems[before] = this.#located(typeof problem === 'string' ? problem : problem());
    }
    return isFit;
  }

  #checkReferences(value: unknown, schema: Keywords, seen: Evaluated): boolean {
    const { $ref, $recursiveRef, __absolute_ref__: ref, __absolute_recursive_ref__: recursive } = schema;
    const isFit = $recursiveRef === undefined || this.#checkReference(value, recursive ?? $recursiveRef, seen);
    return ($ref === undefined || this.#checkReference(value, ref ?? $ref, seen)) && isFit;
  }

  #checkReference(value: unknown, uri: string, seen: Evaluated): boolean {
    const schema = this.#lookup[uri];
    if (schema === undefined) throw new Error(`Unresolved $ref "${uri}".`);
    let known = this.#known.get(schema);
    if (!known) this.#known.set(schema, (known = new Map()));
    let found = known.get(value);
    // An invalid value is checked again for its problems. They name where it is.
    if (found === undefined || (!found && this.#collects())) {
      const own: Evaluated = seen && new Set();
      found = this.isValid(value, schema, own) && (own ?? true);
      known.set(value, found);
    } else this.#spend(SCHEMA_STEPS);
    if (typeof found === 'object') this.#addSeen(found, seen);
    return found !== false;
  }

  #checkKind(value: unknown, type: string, { type: wanted, const: only, enum: choices }: Keywords): boolean {
    const isType = (name: string): boolean => (name === 'integer' ? Number.isInteger(value) : name === type);
    const types: readonly string[] | undefined = typeof wanted === 'string' ? [wanted] : wanted;
    const isFit =
      types === undefined ||
      this.#require(types.some(isType), () => `Instance type "${type}" is invalid. Expected "${types.join('", "')}"`);
    const isConst =
      only === undefined ||
      this.#require(this.#isOneOf(value, [only]), () => `Instance does not match ${JSON.stringify(only)}`);
    const isChoice =
      choices === undefined ||
      this.#require(this.#isOneOf(value, choices), () => `Instance does not match any of ${JSON.stringify(choices)}`);
    return isFit && isConst && isChoice;
  }

  #isOneOf(value: unknown, choices: readonly unknown[]): boolean {
    this.#spend(choices.length * membersIn(value));
    return choices.some((one) => deepCompareStrict(value, one));
  }

  #checkCombinations(value: unknown, schema: Keywords, seen: Evaluated): boolean {
    const { not, anyOf, allOf, oneOf, if: condition, then, else: otherwise } = schema;
    let isFit = true;
    if (not !== undefined && this.#tries(() => this.isValid(value, not)))
      isFit = this.#fail('Instance matched "not" schema');
    if (anyOf !== undefined) isFit = this.#checkAnyOf(value, anyOf, seen) && isFit;
    for (const one of allOf ?? []) isFit = this.#isAlsoValid(value, one, seen) && isFit;
    if (oneOf !== undefined) isFit = this.#checkOneOf(value, oneOf, seen) && isFit;
    if (condition !== undefined) {
      const next = this.#tries(() => this.#isAlsoValid(value, condition, seen)) ? then : otherwise;
      if (next !== undefined) isFit = this.#isAlsoValid(value, next, seen) && isFit;
    }
    return isFit;
  }

  #checkAnyOf(value: unknown, schemas: readonly Subschema[], seen: Evaluated): boolean {
    return this.#explained('Instance does not match any subschemas', () => {
      let isFit = false;
      for (const one of schemas) isFit = this.#isAlsoValid(value, one, seen) || isFit;
      return isFit;
    });
  }

  #checkOneOf(value: unknown, schemas: readonly Subschema[], seen: Evaluated): boolean {
    const own: Evaluated = seen && new Set();
    let count = 0;
    const problem = (): string => `Instance does not match exactly one subschema (${count} matches)`;
    const isFit = this.#explained(problem, () => {
      for (const one of schemas) if (this.#isAlsoValid(value, one, own)) count++;
      return count === 1;
    });
    if (isFit) this.#addSeen(own, seen);
    return isFit;
  }

  #checkObject(value: JsonSchema, schema: Keywords, seen: Evaluated): boolean {
    const { required = [], minProperties, maxProperties, propertyNames } = schema;
    const keys = Object.keys(value);
    let isFit = this.#checkRequired(value, required, (key) => `missing "${key}"`);
    const count = keys.length;
    isFit =
      this.#limit(
        minProperties,
        (min) => count >= min,
        (min) => `Instance does not have at least ${min} properties`,
      ) && isFit;
    isFit =
      this.#limit(
        maxProperties,
        (max) => count <= max,
        (max) => `Instance does not have at most ${max} properties`,
      ) && isFit;
    if (propertyNames !== undefined) {
      for (const key of keys) {
        const problem = (): string => `Property name "${key}" does not match schema`;
        isFit = this.#explained(problem, () => this.#isMemberValid(key, key, propertyNames)) && isFit;
      }
    }
    isFit = this.#checkDependencies(value, schema, seen) && isFit;
    for (const key of keys) isFit = this.#checkProperty(value, key, schema, seen) && isFit;
    const { unevaluatedProperties: rest } = schema;
    if (rest === undefined) return isFit;
    for (const key of keys) {
      if (seen!.has(key)) continue;
      if (this.#isMemberValid(value[key], key, rest)) seen!.add(key);
      else isFit = false;
    }
    return isFit;
  }

  #checkRequired(value: JsonSchema, keys: readonly string[], problem: (key: string) => string): boolean {
    let isFit = true;
    this.#spend(keys.length);
    for (const key of keys) if (!Object.hasOwn(value, key)) isFit = this.#fail(() => problem(key));
    return isFit;
  }

  #checkDependencies(value: JsonSchema, schema: Keywords, seen: Evaluated): boolean {
    const { dependentRequired, dependentSchemas, dependencies } = schema;
    let isFit = true;
    for (const group of [dependentRequired, dependentSchemas, dependencies]) {
      for (const key in group) {
        this.#spend(SCHEMA_STEPS);
        if (!Object.hasOwn(value, key)) continue;
        const needed: Subschema | readonly string[] = group[key]!;
        const isMet = Array.isArray(needed)
          ? this.#checkRequired(value, needed, (other) => `Instance has "${key}" but does not have "${other}"`)
          : this.#isAlsoValid(value, needed as Subschema, seen);
        isFit = isMet && isFit;
      }
    }
    return isFit;
  }

  #checkProperty(value: JsonSchema, key: string, schema: Keywords, seen: Evaluated): boolean {
    const { properties, patternProperties, additionalProperties } = schema;
    this.#spend(SCHEMA_STEPS);
    let isCovered = false;
    let isFit = true;
    const check = (one: Subschema): boolean => {
      isCovered = true;
      const isValid = this.#isMemberValid(value[key], key, one);
      if (isValid) seen?.add(key);
      else isFit = false;
      return isValid;
    };
    if (properties && Object.hasOwn(properties, key)) check(properties[key]!);
    for (const pattern in patternProperties) {
      this.#spend(SCHEMA_STEPS);
      if (this.#matches(pattern, key)) check(patternProperties[pattern]!);
    }
    if (!isCovered && additionalProperties !== undefined) check(additionalProperties);
    return isFit;
  }

  #checkList(list: readonly unknown[], schema: Keywords, seen: Evaluated): boolean {
    const { minItems, maxItems, prefixItems = [], items, additionalItems, unevaluatedItems, uniqueItems } = schema;
    const count = list.length;
    let isFit = this.#limit(
      maxItems,
      (max) => count <= max,
      (max) => `Array has too many items (${count} > ${max})`,
    );
    isFit =
      this.#limit(
        minItems,
        (min) => count >= min,
        (min) => `Array has too few items (${count} < ${min})`,
      ) && isFit;
    // Before draft 2020-12 `items` could be what `prefixItems` is now, and `additionalItems` what `items` is.
    const first = Array.isArray(items) ? items : prefixItems;
    const rest = Array.isArray(items) ? additionalItems : items;
    for (let i = 0; i < count; i++) {
      const item = i < first.length ? first[i] : rest;
      if (item === undefined) break;
      seen?.add(i);
      isFit = this.#isMemberValid(list[i], i, item) && isFit;
    }
    isFit = this.#checkContains(list, schema, seen) && isFit;
    for (let i = 0; unevaluatedItems !== undefined && i < count; i++) {
      if (seen!.has(i)) continue;
      seen!.add(i);
      isFit = this.#isMemberValid(list[i], i, unevaluatedItems) && isFit;
    }
    if (!uniqueItems) return isFit;
    const known = new Set<string>();
    for (const item of list) {
      this.#spend(SCHEMA_STEPS * membersIn(item));
      known.add(stableJson(item));
    }
    return this.#require(known.size === count, () => 'Array has duplicate items') && isFit;
  }

  #checkContains(
    list: readonly unknown[],
    { contains, minContains = 1, maxContains = Infinity }: Keywords,
    seen: Evaluated,
  ): boolean {
    if (contains === undefined) return true;
    let count = 0;
    for (const [index, item] of list.entries()) {
      if (!this.#tries(() => this.isValid(item, contains))) continue;
      seen?.add(index);
      count++;
    }
    if (count < minContains) {
      return this.#fail(`Array must contain at least ${minContains} items matching schema. Only ${count} were found`);
    }
    return (
      count <= maxContains ||
      this.#fail(`Array may contain at most ${maxContains} items matching schema. ${count} were found`)
    );
  }

  #checkNumber(value: number, schema: Keywords): boolean {
    const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
    const fits = [
      this.#limit(
        minimum,
        (min) => value >= min,
        (min) => `${value} is less than ${min}`,
      ),
      this.#limit(
        maximum,
        (max) => value <= max,
        (max) => `${value} is greater than ${max}`,
      ),
      this.#limit(
        exclusiveMinimum as number | undefined,
        (min) => value > min,
        (min) => `${value} is not greater than ${min}`,
      ),
      this.#limit(
        exclusiveMaximum as number | undefined,
        (max) => value < max,
        (max) => `${value} is greater than or equal to ${max}`,
      ),
      this.#limit(
        multipleOf,
        (divisor) => {
          this.#spend(SCHEMA_STEPS);
          return isMultipleOf(value, divisor);
        },
        (divisor) => `${value} is not a multiple of ${divisor}`,
      ),
    ];
    return fits.every(Boolean);
  }

  #checkText(text: string, { minLength, maxLength, pattern, format: name }: Keywords): boolean {
    this.#spend(text.length >> 4);
    const length = minLength === undefined && maxLength === undefined ? 0 : ucs2length(text);
    let isFit = this.#limit(
      minLength,
      (min) => length >= min,
      (min) => `String is too short (${length} < ${min})`,
    );
    isFit =
      this.#limit(
        maxLength,
        (max) => length <= max,
        (max) => `String is too long (${length} > ${max})`,
      ) && isFit;
    // A text that is too long is not searched.
    if (pattern !== undefined && isFit) {
      isFit = this.#require(this.#matches(pattern, text), () => 'String does not match pattern');
    }
    if (name === undefined || !Object.hasOwn(format, name)) return isFit;
    const hasFormat = name === 'url' ? isUrl(text) : format[name]!(text);
    return this.#require(hasFormat, () => `String does not match format "${name}"`) && isFit;
  }
}

function typeOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  const type = typeof value;
  if (['object', 'string', 'number', 'boolean'].includes(type)) return type;
  throw new Error(`a value of type ${type} has no JSON form`);
}

/** The values in a value, and about as many for a long text. */
function membersIn(value: unknown): number {
  if (typeof value === 'string') return 1 + (value.length >> 5);
  if (typeof value !== 'object' || value === null) return 1;
  let count = 1;
  for (const key in value) count += 1 + membersIn((value as JsonSchema)[key]);
  return count;
}

/** The expression of the library for this format takes exponential time. */
function isUrl(text: string): boolean {
  return /^(https?|ftp):\/\/\S+$/i.test(text) && URL.canParse(text);
}

/** Exact, unlike the remainder of two numbers with a fraction. */
function isMultipleOf(value: number, divisor: number): boolean {
  if (!(divisor > 0)) return false;
  if (Number.isSafeInteger(value) && Number.isSafeInteger(divisor)) return value % divisor === 0;
  const [number, exponent] = decimal(value);
  const [by, byExponent] = decimal(divisor);
  return (number * powerOf10(exponent - byExponent)) % (by * powerOf10(byExponent - exponent)) === 0n;
}

/**
 * 1 for a negative exponent. A large one makes no difference: the digits of a number are below 10 ** 17, so no factor of them is
 * a higher power of 2 or 5, and they are not a multiple of a higher power of 10.
 */
function powerOf10(exponent: number): bigint {
  return 10n ** BigInt(Math.max(0, Math.min(exponent, 57)));
}

function decimal(number: number): [digits: bigint, exponent: number] {
  const [digits = '', exponent = '0'] = String(Math.abs(number)).split('e');
  const [whole = '', fraction = ''] = digits.split('.');
  return [BigInt(whole + fraction), Number(exponent) - fraction.length];
}
