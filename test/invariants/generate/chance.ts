import fc, { type Arbitrary } from 'fast-check';

export function rarely(percent: number): Arbitrary<boolean> {
  return mostly(false, percent, fc.constant(true));
}

export function mostly<T, U>(usual: T, percent: number, other: Arbitrary<U>): Arbitrary<T | U> {
  return fc.oneof(
    { weight: 100 - percent, arbitrary: fc.constant(usual) },
    { weight: percent, arbitrary: other as Arbitrary<T | U> },
  );
}

/** A record that has the field in this percentage of the cases. */
export function optionally<K extends string, T>(
  name: K,
  percent: number,
  value: Arbitrary<T>,
): Arbitrary<{ [key in K]?: T }> {
  return mostly(
    {},
    percent,
    value.map((given) => ({ [name]: given }) as { [key in K]?: T }),
  );
}
