import { mqttClient, type MqttClient } from '../src/mqtt/client.ts';

type Json = Record<string, unknown>;

/** A device that knows only the topics and payloads of the design document. */
export interface PlainDevice {
  readonly commands: Json[];
  report(report: Json): Promise<boolean>;
  /** Resolves when it has as many commands. */
  received(count: number): Promise<Json>;
  close(): Promise<void>;
}

export async function plainDevice(url: string, id = 'living-room-pi', prefix = 'evoclaw'): Promise<PlainDevice> {
  const commands: Json[] = [];
  let wake: (() => void)[] = [];
  const change = (): void => {
    const waiting = wake;
    wake = [];
    for (const done of waiting) done();
  };
  const client: MqttClient = mqttClient({
    url,
    clientId: `evoclaw-${id}`,
    protocol: 4,
    subscriptions: [{ topic: `${prefix}/agents/${id}/commands`, qos: 1 }],
    onMessage({ payload }) {
      commands.push(JSON.parse(Buffer.from(payload).toString()) as Json);
      change();
    },
    onConnect: change,
  });
  const until = async (isTrue: () => boolean): Promise<void> => {
    while (!isTrue()) await new Promise<void>((done) => wake.push(done));
  };
  await until(() => client.isConnected);
  return {
    commands,
    report: (report) =>
      client.publish({ topic: `${prefix}/agents/${id}/reports`, payload: JSON.stringify(report), qos: 1 }),
    async received(count) {
      await until(() => commands.length >= count);
      return commands[count - 1]!;
    },
    close: () => client.close(),
  };
}
