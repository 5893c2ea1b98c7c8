import type { HeldProcess, ToolContext } from '@treadle/core';

/** Where tools act: the files and the programs of one machine, around one working folder. */
export interface Ops {
  readonly files: FileOps;
  readonly exec: ExecOps;
}

/** What narrows the run of a call. */
export type NarrowedRun = Pick<ToolContext, 'narrowedBy' | 'narrowedRules'>;

/**
 * The files of a machine. Paths are relative to the working folder, or absolute. Throws a `DeniedError` for what is not
 * allowed; otherwise errors with the codes of `node:fs`, such as `ENOENT`.
 */
export interface FileOps {
  /** The working folder: absolute, with `/`. */
  readonly folder: string;
  /** The same files for a run that is narrowed: its skills may show more, and its rules less. Absent: it makes no difference. */
  narrowed?(run: NarrowedRun): FileOps;
  stat(path: string): Promise<FileStatus>;
  /** Opens a plain file for reading. The caller closes it. */
  open(path: string): Promise<OpenFile>;
  /** The names in a folder. */
  list(path: string): Promise<readonly FolderEntry[]>;
  /**
   * Replaces a file, or creates it with the folders above it. Readers see the old or the new content. A link is followed, and
   * its target replaced. The file keeps its mode, and its owner if that is possible; other hard links keep the old content.
   */
  write(path: string, content: string | Uint8Array, options?: WriteOptions): Promise<void>;
  /** Removes a file, or a link but not its target. */
  remove(path: string, options?: ChangeOptions): Promise<void>;
  /** Moves a file or folder, or a link but not its target. A file at the new place is replaced. */
  rename(from: string, to: string): Promise<void>;
  /** Calls the listener with the place of each file that is written or moved here, without links. Absent: nobody is told. */
  onChange?(listener: (path: string) => void): void;
}

export interface FileStatus {
  /** The place without links, absolute, with `/`. */
  readonly path: string;
  readonly type: 'file' | 'folder' | 'other';
  readonly size: number;
  readonly modifiedMs: number;
  /** Another text after each change of the file, as far as the file system can tell. */
  readonly stamp: string;
  /** Its owner may execute it. */
  readonly executable: boolean;
}

export interface OpenFile extends FileStatus {
  readonly handle: ReadHandle;
}

/** The part of a `FileHandle` of `node:fs` that reading needs. */
export interface ReadHandle {
  /** `position` null: continues after the last read. */
  read(
    buffer: Uint8Array,
    offset: number,
    length: number,
    position: number | null,
  ): Promise<{ readonly bytesRead: number }>;
  close(): Promise<void>;
}

export interface FolderEntry {
  readonly name: string;
  readonly type: 'file' | 'folder' | 'link' | 'other';
}

export interface ChangeOptions {
  /** Fails with `ESTALE` if the file has another stamp, so that nobody's change is lost. */
  readonly stamp?: string;
}

export interface WriteOptions extends ChangeOptions {
  /** Fails with `EEXIST` if there is a file. */
  readonly create?: boolean;
  /** A new file gets the mode of this one, and its owner if that is possible. */
  readonly like?: string;
  /** Lets those who may read the file execute it, or nobody. Default: as before; a new file is not executable. */
  readonly executable?: boolean;
}

/** The programs of a machine. */
export interface ExecOps {
  /** Rejects if the program cannot be started. */
  start(request: ExecRequest): Promise<Execution>;
  /** Kills all programs that were started with the mark, and their descendants, as far as they can be found by it. */
  killMarked(mark: string): Promise<void>;
  /**
   * What a run records before it starts its first program with the mark, so that the program is killed if the driver is
   * killed before it knows the process. Absent: such a program survives.
   */
  markedProcess?(mark: string): HeldProcess;
  /** The sandbox that programs run in. Absent: they run as this process does. */
  readonly sandbox?: SandboxFacts;
  /** The ripgrep of the machine, if it has one. */
  readonly ripgrep?: string | undefined;
}

export interface ExecRequest {
  /** The program, and its arguments as they are. */
  readonly argv: readonly [program: string, ...args: string[]];
  /** Relative to the working folder, or absolute; default: the working folder. */
  readonly workdir?: string;
  /** Added to the environment of the program. A variable that is undefined is removed from it. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** `write` will be used. Otherwise its standard input is empty. */
  readonly writable?: boolean;
  /** 1 to 64 letters and digits. The program and its descendants can be killed by it. */
  readonly mark?: string;
  /** Replaces the environment that programs get. `env` is added to it. */
  readonly baseEnv?: Readonly<Record<string, string>>;
  /** Without `writable`: its input is a pipe that has ended, and not /dev/null. A descriptor leads to the device of the host. */
  readonly endedInput?: boolean;
  /** Files that the program gets open for reading, as the descriptors 3, 4, and so on. */
  readonly inputs?: readonly string[];
  /** Files that it gets open for writing, as the descriptors after those. */
  readonly outputs?: readonly string[];
  /**
   * The program writes a line to the descriptor after those, and goes on when it can read one from it. This is called when it was
   * started, and what it returns when the program waits: that says why the program may not go on, or nothing. Then it is killed.
   */
  readonly gate?: () => (process: { readonly pid: number }) => string | undefined;
  /** The room that the program runs in. Absent: one of its own, that ends with it. */
  readonly room?: Room;
  /** The sources of what narrows the run of the program. */
  readonly narrowedBy?: readonly string[];
  /** Folders that the program reads besides what the others do. A sandbox shows them to it. */
  readonly reads?: readonly string[];
}

/** What the programs of one run share in a sandbox: /tmp, the home folder, and the loopback. */
export interface Room {
  readonly id: string;
  /** A program runs in it. */
  isBusy(): boolean;
  close(): Promise<void>;
}

/** How a machine confines its programs. */
export interface SandboxFacts {
  /** The name of the engine. */
  readonly engine: string;
  /** What was seen to hold on this machine. */
  readonly promises: readonly string[];
  /** The same programs without the sandbox. */
  readonly outside: ExecOps;
  openRoom(): Promise<Room>;
  /** Folders that programs see besides the others if these sources narrow their run. Absent: none. */
  readable?(narrowedBy: readonly string[]): readonly string[];
  /** What the sandbox may have stopped, as far as the output of a failed program shows it. */
  blocked(output: string): string | undefined;
}

/** A program that was started. */
export interface Execution {
  /** For `hold`, so that it is killed if it survives the process that drives the run. */
  readonly process: HeldProcess & { readonly pid: number };
  /**
   * What it writes, in the order in which it arrives. The program waits while nobody reads. Can be read once. Ends when all
   * writers have ended; after the exit of the program, when nothing more is written for a short time.
   */
  readonly output: AsyncIterable<OutputChunk>;
  readonly exit: Promise<Exit>;
  /** Writes to its standard input. Rejects if it has ended. */
  write(text: string): Promise<void>;
  endInput(): void;
  /** Kills it and all its descendants. Resolves when none of them runs any more. */
  kill(): Promise<void>;
}

export interface OutputChunk {
  readonly stream: 'stdout' | 'stderr';
  readonly bytes: Uint8Array;
}

/** One of the two is set. */
export interface Exit {
  readonly exitCode: number | undefined;
  readonly signal: string | undefined;
}
