/**
 * Metrics in memory, and their text for Prometheus (text exposition format 0.0.4).
 *
 * 1. Counting costs one map lookup. Nothing is formatted before somebody reads the metrics.
 * 2. The number of series of a metric is bounded: further label values are counted together, as `other`.
 */
export interface Metrics {
  /** Adds a counter. Its name ends with `_total`. */
  counter(name: string, help: string, labels?: readonly string[]): Counter;
  /** Adds a gauge. `read` is called whenever the metrics are read. */
  gauge(name: string, help: string, read: () => number): void;
  /** Adds a gauge with one label. `read` returns the value for each value of the label. */
  gauge(name: string, help: string, read: () => Readonly<Record<string, number>>, label: string): void;
  /** Adds a counter that something else counts. */
  countedElsewhere(name: string, help: string, read: () => number): void;
  /** Adds a histogram. `bounds`: the upper bounds of its buckets, in ascending order. */
  histogram(name: string, help: string, bounds: readonly number[], labels?: readonly string[]): Histogram;
  /** All metrics, as Prometheus reads them. */
  text(): string;
}

export interface Counter {
  /** `labels`: the values of its labels, in their order. */
  add(amount: number, labels?: readonly string[]): void;
}

export interface Histogram {
  observe(value: number, labels?: readonly string[]): void;
}

/** The most series of one metric. */
const MAX_SERIES = 500;
const OTHER = 'other';

export const CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** A registry. Several parts of a program can add their metrics to one. */
export function newMetrics(): Metrics {
  const written = new Map<string, () => string>();

  function add(name: string, type: string, help: string, lines: () => Iterable<string>): void {
    if (!/^[a-zA-Z_:][\w:]*$/.test(name)) throw new Error(`${JSON.stringify(name)} is not a valid name of a metric.`);
    if (written.has(name)) throw new Error(`There is already a metric ${name}. Give the new one another name.`);
    written.set(name, () =>
      [`# HELP ${name} ${escaped(help)}`, `# TYPE ${name} ${type}`, ...lines()].map((line) => `${line}\n`).join(''),
    );
  }

  function gauge(name: string, help: string, read: () => number | Readonly<Record<string, number>>, label = ''): void {
    add(name, 'gauge', help, () => {
      const value = read();
      if (typeof value === 'number') return [`${name} ${numberText(value)}`];
      return Object.entries(value).map(([key, one]) => `${name}${labelText([label], [key])} ${numberText(one)}`);
    });
  }

  return {
    counter(name, help, labels = []) {
      const all = seriesOf(labels, () => ({ value: 0 }));
      // Without labels there is one series, which is shown before anything was counted.
      if (labels.length === 0) all.of([]);
      add(name, 'counter', help, () => all.entries().map(([text, { value }]) => `${name}${text} ${numberText(value)}`));
      return {
        add(amount, values = []) {
          all.of(values).value += amount;
        },
      };
    },
    gauge,
    countedElsewhere(name, help, read) {
      add(name, 'counter', help, () => [`${name} ${numberText(read())}`]);
    },
    histogram(name, help, bounds, labels = []) {
      const all = seriesOf(labels, () => ({ counts: bounds.map(() => 0), sum: 0, count: 0 }));
      if (labels.length === 0) all.of([]);
      add(name, 'histogram', help, function* () {
        for (const [text, { counts, sum, count }] of all.entries()) {
          let below = 0;
          for (const [index, bound] of bounds.entries()) {
            below += counts[index]!;
            yield `${name}_bucket${withLabel(text, 'le', numberText(bound))} ${below}`;
          }
          yield `${name}_bucket${withLabel(text, 'le', '+Inf')} ${count}`;
          yield `${name}_sum${text} ${numberText(sum)}`;
          yield `${name}_count${text} ${count}`;
        }
      });
      return {
        observe(value, values = []) {
          const series = all.of(values);
          series.count += 1;
          series.sum += value;
          for (let index = 0; index < bounds.length; index++) {
            if (value > bounds[index]!) continue;
            series.counts[index]! += 1;
            return;
          }
        },
      };
    },
    text: () => [...written.values()].map((write) => write()).join(''),
  };
}

interface AllSeries<T> {
  of(values: readonly string[]): T;
  /** Each with its labels, as text. */
  entries(): [string, T][];
}

function seriesOf<T>(labels: readonly string[], newSeries: () => T): AllSeries<T> {
  const byKey = new Map<string, { readonly values: readonly string[]; readonly series: T }>();
  const add = (key: string, values: readonly string[]): T => {
    const series = newSeries();
    byKey.set(key, { values: [...values], series });
    return series;
  };
  return {
    of(values) {
      const key = values.length === 1 ? values[0]! : values.join('\0');
      const known = byKey.get(key);
      if (known) return known.series;
      if (byKey.size < MAX_SERIES - 1) return add(key, values);
      const others = labels.map(() => OTHER);
      const otherKey = others.join('\0');
      return byKey.get(otherKey)?.series ?? add(otherKey, others);
    },
    entries: () => [...byKey.values()].map(({ values, series }) => [labelText(labels, values), series]),
  };
}

/** `{route="/v1/models",status="200"}`, or nothing. */
function labelText(names: readonly string[], values: readonly string[]): string {
  if (names.length === 0) return '';
  const pairs = names.map((name, index) => `${name}="${escaped(values[index] ?? '').replaceAll('"', '\\"')}"`);
  return `{${pairs.join(',')}}`;
}

function withLabel(text: string, name: string, value: string): string {
  return text === '' ? `{${name}="${value}"}` : `${text.slice(0, -1)},${name}="${value}"}`;
}

function escaped(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
}

function numberText(value: number): string {
  if (value === Infinity) return '+Inf';
  if (value === -Infinity) return '-Inf';
  return String(value);
}
