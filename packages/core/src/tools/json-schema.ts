import { deepCompareStrict, dereference, format, ucs2length, type Schema as Keywords } from '@cfworker/json-schema';
import { stableJson } from '../machine/history.ts';
import type { JsonSchema } from '../model.ts';

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
    check.isValid(value, schema);
    return check.problems;
  };
}

/** The keys or indices of a value that keywords have evaluated, for `unevaluatedProperties` and `unevaluatedItems`. */
type Evaluated = Set<string | number> | undefined;
type Subschema = Keywords | boolean;

/** A value with very many problems is described by the first ones. */
const MAX_PROBLEMS = 1_000;

/** Schemas that refer to each other can apply to a value exponentially often. */
const MAX_STEPS = 1_000_000;

/** The check of one value. */
class Check {
  readonly problems: string[] = [];
  readonly #path: (string | number)[] = [];
  readonly #lookup: ReturnType<typeof dereference>;
  readonly #tracks: boolean;
  readonly #matches: PatternMatcher;
  #steps = 0;

  constructor(lookup: ReturnType<typeof dereference>, tracks: boolean, matches: PatternMatcher) {
    this.#lookup = lookup;
    this.#tracks = tracks;
    this.#matches = matches;
  }

  isValid(value: unknown, schema: Subschema, evaluated?: Evaluated): boolean {
    if (++this.#steps > MAX_STEPS) throw new Error('it takes too many steps');
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

  #fail(problem: string): false {
    if (this.problems.length < MAX_PROBLEMS) this.problems.push(this.#located(problem));
    return false;
  }

  #located(problem: string): string {
    return this.#path.length === 0 ? problem : `${this.#path.join('.')}: ${problem}`;
  }

  /** `problem` is a function where most values are valid, because it costs more than the test. */
  #require(isFit: boolean, problem: () => string): boolean {
    return isFit || this.#fail(problem());
  }

  /** A keyword that is absent requires nothing. */
  #limit(limit: number | undefined, isFit: (limit: number) => boolean, problem: (limit: number) => string): boolean {
    return limit === undefined || isFit(limit) || this.#fail(problem(limit));
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
    if (isValid && own) for (const key of own) seen!.add(key);
    return isValid;
  }

  /** Drops the problems of `test`, because they do not make the value invalid. */
  #tries(test: () => boolean): boolean {
    const before = this.problems.length;
    const isFit = test();
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
    const isFit =
      $recursiveRef === undefined || this.#isAlsoValid(value, this.#resolved(recursive ?? $recursiveRef), seen);
    return ($ref === undefined || this.#isAlsoValid(value, this.#resolved(ref ?? $ref), seen)) && isFit;
  }

  #resolved(uri: string): Subschema {
    const found = this.#lookup[uri];
    if (found === undefined) throw new Error(`Unresolved $ref "${uri}".`);
    return found;
  }

  #checkKind(value: unknown, type: string, { type: wanted, const: only, enum: choices }: Keywords): boolean {
    const isType = (name: string): boolean => (name === 'integer' ? Number.isInteger(value) : name === type);
    const types: readonly string[] | undefined = typeof wanted === 'string' ? [wanted] : wanted;
    const isFit =
      types === undefined ||
      this.#require(types.some(isType), () => `Instance type "${type}" is invalid. Expected "${types.join('", "')}"`);
    const isConst =
      only === undefined ||
      this.#require(deepCompareStrict(value, only), () => `Instance does not match ${JSON.stringify(only)}`);
    const isChoice =
      choices === undefined ||
      this.#require(
        choices.some((one) => deepCompareStrict(value, one)),
        () => `Instance does not match any of ${JSON.stringify(choices)}`,
      );
    return isFit && isConst && isChoice;
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
    if (isFit && own) for (const key of own) seen!.add(key);
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
    for (const key of keys) if (!Object.hasOwn(value, key)) isFit = this.#fail(problem(key));
    return isFit;
  }

  #checkDependencies(value: JsonSchema, schema: Keywords, seen: Evaluated): boolean {
    const { dependentRequired, dependentSchemas, dependencies } = schema;
    let isFit = true;
    for (const group of [dependentRequired, dependentSchemas, dependencies]) {
      for (const [key, needed] of Object.entries<Subschema | readonly string[]>(group ?? {})) {
        if (!Object.hasOwn(value, key)) continue;
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
    for (const pattern in patternProperties) if (this.#matches(pattern, key)) check(patternProperties[pattern]!);
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
    return this.#require(new Set(list.map(stableJson)).size === count, () => 'Array has duplicate items') && isFit;
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
        (divisor) => isMultipleOf(value, divisor),
        (divisor) => `${value} is not a multiple of ${divisor}`,
      ),
    ];
    return fits.every(Boolean);
  }

  #checkText(text: string, { minLength, maxLength, pattern, format: name }: Keywords): boolean {
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

/** The expression of the library for this format takes exponential time. */
function isUrl(text: string): boolean {
  return /^(https?|ftp):\/\/\S+$/i.test(text) && URL.canParse(text);
}

/** Exact, unlike the remainder of two numbers with a fraction. */
function isMultipleOf(value: number, divisor: number): boolean {
  if (!(divisor > 0)) return false;
  const [number, exponent] = decimal(value);
  const [by, byExponent] = decimal(divisor);
  const least = Math.min(exponent, byExponent);
  return (number * 10n ** BigInt(exponent - least)) % (by * 10n ** BigInt(byExponent - least)) === 0n;
}

function decimal(number: number): [digits: bigint, exponent: number] {
  const [digits = '', exponent = '0'] = String(Math.abs(number)).split('e');
  const [whole = '', fraction = ''] = digits.split('.');
  return [BigInt(whole + fraction), Number(exponent) - fraction.length];
}
