export async function msOf(call: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await call();
  return performance.now() - start;
}

export function quantile(values: readonly number[], share: number): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length * share)]!;
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

export function shown(values: readonly number[]): string {
  return `${median(values).toFixed(2).padStart(6)}   (${quantile(values, 0.1).toFixed(2)} to ${quantile(values, 0.9).toFixed(2)})`;
}
