/** The topics of one prefix. Devices and orchestrators with different prefixes do not see each other. */
export interface Topics {
  readonly prefix: string;
  /** To one device, and to all. */
  commands(id: string): string;
  readonly broadcast: string;
  /** From a device. The last two are retained. */
  reports(id: string): string;
  status(id: string): string;
  capabilities(id: string): string;
  /** Of the original protocol: strategies of an evolution engine. Answered as unsupported. */
  strategy(id: string): string;
  /** Filter for one kind of topic of all devices. */
  all(kind: DeviceTopic): string;
  /** Undefined: not a topic of this prefix. */
  parse(topic: string): ParsedTopic | undefined;
}

export type DeviceTopic = 'commands' | 'reports' | 'status' | 'capabilities' | 'strategy';
export type ParsedTopic = { readonly kind: DeviceTopic; readonly id: string } | { readonly kind: 'broadcast' };

const KINDS: readonly string[] = [
  'commands',
  'reports',
  'status',
  'capabilities',
  'strategy',
] satisfies readonly DeviceTopic[];

/** A name that is one level of a topic, and cannot be taken for a wildcard or a path. */
export function isDeviceId(id: string): boolean {
  return /^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$/.test(id);
}

/** One or more levels, such as `treadle` or `site/treadle`. */
export function isTopicPrefix(prefix: string): boolean {
  return /^[A-Za-z0-9_-][A-Za-z0-9_.-]*(\/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*$/.test(prefix) && prefix.length <= 128;
}

/** Throws for a prefix that would not be a plain topic. */
export function topicsOf(prefix: string): Topics {
  if (!isTopicPrefix(prefix)) {
    throw new TypeError(
      `The topic prefix ${JSON.stringify(prefix)} cannot be used. Use letters, digits, "_", "-", "." and "/".`,
    );
  }
  const at = (kind: DeviceTopic, id: string): string => `${prefix}/agents/${id}/${kind}`;
  const broadcast = `${prefix}/broadcast`;
  return {
    prefix,
    broadcast,
    commands: (id) => at('commands', id),
    reports: (id) => at('reports', id),
    status: (id) => at('status', id),
    capabilities: (id) => at('capabilities', id),
    strategy: (id) => at('strategy', id),
    all: (kind) => at(kind, '+'),
    parse(topic) {
      if (topic === broadcast) return { kind: 'broadcast' };
      if (!topic.startsWith(`${prefix}/agents/`)) return undefined;
      const [id = '', kind = '', ...more] = topic.slice(prefix.length + '/agents/'.length).split('/');
      if (!isDeviceId(id) || !KINDS.includes(kind) || more.length > 0) return undefined;
      return { kind: kind as DeviceTopic, id };
    },
  };
}
