/*
 * Ordinary work. Each job prints the same and ends with the same exit code inside a sandbox and outside. They run one after the other in
 * one folder, which is prepared by the first ones.
 */
export interface Job {
  readonly name: string;
  readonly sh: string;
}

const job = (name: string, sh: string): Job => ({ name, sh });

export const JOBS: readonly Job[] = [
  // Files and pipes.
  job('write and read a file', 'echo hello >a.txt; cat a.txt'),
  job('append', 'echo more >>a.txt; wc -l <a.txt'),
  job('sort and count words', 'printf "b\\na\\nb\\n" | sort | uniq -c | tr -s " "'),
  job('search with grep', 'mkdir -p src; echo "const x = 1;" >src/x.js; grep -rn "x =" src'),
  job('find files', 'find src -name "*.js" | sort'),
  job('replace with sed', 'sed -i "s/1/2/" src/x.js; cat src/x.js'),
  job('awk', 'printf "1 2\\n3 4\\n" | awk "{ s += \\$2 } END { print s }"'),
  job('copy and move folders', 'cp -r src lib; mv lib lib2; ls lib2; rm -r lib2'),
  job('links', 'ln -sf a.txt link; readlink link; cat link; ln -f a.txt hard; cat hard; rm link hard'),
  job('permissions', 'echo "echo ran" >run.sh; chmod +x run.sh; ./run.sh; stat -c %a run.sh'),
  job('archive', 'tar czf a.tgz src; tar tzf a.tgz | sort; rm a.tgz'),
  job('compare files', 'echo a >one; echo b >two; diff one two; rm one two'),
  job(
    'patch',
    'printf -- "--- a.txt\\n+++ a.txt\\n@@ -1,2 +1,2 @@\\n-hello\\n+hallo\\n more\\n" | patch -p0; cat a.txt',
  ),
  job('here-document', 'cat <<X\none\ntwo\nX'),
  job('process substitution', 'diff <(echo a) <(echo a) && echo same'),
  job('temporary files', 'f=$(mktemp); echo temp >"$f"; cat "$f"; rm "$f"'),
  job('a file in /tmp', 'echo t >/tmp/t; cat /tmp/t'),
  job('standard error by name', 'echo err >/dev/stderr; echo out >/dev/stdout'),
  job('exit code', '( exit 3 ); echo $?'),
  job('failing command', 'ls missing-file 2>/dev/null || echo missing'),
  job('checksum', 'sha256sum a.txt | cut -c1-16'),
  job('date and time zone', 'TZ=UTC date -d @0 +%F'),
  job('xargs', 'printf "a\\nb\\n" | xargs -n1 echo item'),
  job('base64', 'echo text | base64 | base64 -d'),
  job('large output', 'seq 1 20000 | tail -1'),
  job('many small files', 'mkdir -p many; for i in $(seq 200); do echo $i >many/$i; done; ls many | wc -l; rm -r many'),
  job('who am I', 'id -u'),
  job('home folder', 'cd ~ && echo ok >note && cat note && rm note'),

  // Processes.
  job('background process', 'sleep 0.1 & wait; echo waited'),
  job('pipeline of processes', 'yes | head -1000 | wc -l'),
  job('kill a child', 'sleep 100 & kill $!; wait $! 2>/dev/null; echo $?'),
  job('time limit', 'timeout 0.1 sleep 10; echo $?'),
  job('trap', 'trap "echo bye" EXIT; echo hi'),
  job('see its own processes', 'sleep 5 & until ps -p $! -o comm= | grep sleep; do :; done; kill $!'),
  job('parallel work', 'seq 8 | xargs -P4 -I{} sh -c "echo {}" | sort -n | tr "\\n" " "'),
  job(
    'server and client on the loopback',
    'python3 -m http.server 18765 --bind 127.0.0.1 >/dev/null 2>&1 & p=$!; for i in $(seq 100); do curl -sf http://127.0.0.1:18765/a.txt && break; sleep 0.1; done; kill $p',
  ),
  job(
    'a socket of its own',
    `python3 -c "
import socket, threading
s = socket.socket(socket.AF_UNIX); s.bind('/tmp/own.sock'); s.listen()
threading.Thread(target=lambda: s.accept()[0].send(b'pong')).start()
c = socket.socket(socket.AF_UNIX); c.connect('/tmp/own.sock'); print(c.recv(9))"; rm -f /tmp/own.sock`,
  ),

  // Python.
  job('python', 'python3 -c "print(sum(range(10)))"'),
  job(
    'python modules',
    "python3 -c \"import json, sqlite3, ssl, subprocess; print(subprocess.check_output(['echo', 'x']))\"",
  ),
  job(
    'python threads and processes',
    'python3 -c "from multiprocessing import Pool; print(Pool(2).map(abs, [-1, -2]))"',
  ),
  job(
    'python test',
    'mkdir -p py; printf "import unittest\\nclass T(unittest.TestCase):\\n  def test(self): self.assertEqual(1, 1)\\n" >py/test_a.py; python3 -m unittest discover py 2>&1 | tail -1',
  ),
  job(
    'python environment',
    'python3 -m venv --without-pip venv && venv/bin/python -c "import sys; print(sys.prefix != sys.base_prefix)"; rm -rf venv',
  ),

  // C.
  job(
    'compile C',
    'printf "#include <stdio.h>\\nint main(void) { puts(\\"compiled\\"); return 0; }\\n" >m.c; cc -o m m.c && ./m',
  ),
  job('make', 'printf "all: m2\\nm2: m.c\\n\\tcc -o m2 m.c\\n" >Makefile; make -s && ./m2; rm m m2'),
  job('static library', 'cc -c m.c && ar rcs m.a m.o && ls m.a; rm m.a m.o'),

  // Node and npm.
  job('node', 'node -e "console.log(1 + 1)"'),
  job(
    'node test runner',
    'echo "require(\'node:test\')(\'ok\', () => {})" >t.test.js; node --test --test-reporter=tap t.test.js | grep -c "^ok"',
  ),
  job(
    'node child process',
    "node -e \"console.log(require('child_process').execSync('echo child').toString().trim())\"",
  ),
  job(
    'node worker',
    "node -e \"const { Worker } = require('worker_threads'); new Worker('console.log(42)', { eval: true })\"",
  ),
  job(
    'npm script',
    'echo \'{"name":"p","version":"1.0.0","scripts":{"hello":"echo from npm"}}\' >package.json; npm run -s hello 2>/dev/null',
  ),
  job('npm pack', 'npm pack --silent 2>/dev/null; rm -f p-1.0.0.tgz'),
  job(
    'npm ci from a local registry, and test',
    `node registry.mjs & p=$!
for i in $(seq 100); do curl -sf http://127.0.0.1:18766/ >/dev/null && break; sleep 0.1; done
cp project.json package.json
npm install --silent --no-audit --no-fund --registry http://127.0.0.1:18766/ 2>/dev/null && rm -rf node_modules
npm ci --silent --no-audit --no-fund --registry http://127.0.0.1:18766/ 2>/dev/null; npm test -s 2>/dev/null; kill $p; rm -rf node_modules package-lock.json`,
  ),

  // Git.
  job(
    'git init and first commit',
    'rm -rf repo; git init -q -b main repo && cd repo && echo 1 >f && git add f && git commit -qm one && git log --format=%s',
  ),
  job('git status and diff', 'cd repo && echo 2 >f && git status --short && git diff --stat | tail -1'),
  job(
    'git branch and merge',
    'cd repo && git checkout -q -b topic && git commit -qam two && git checkout -q main && git merge -q topic && git log --format=%s',
  ),
  job('git stash', 'cd repo && echo 3 >f && git stash -q && cat f && git stash pop -q && cat f'),
  job('git tag and show', 'cd repo && git tag v1 && git show --format=%s -s v1'),
  job('git reset and restore', 'cd repo && git restore f && cat f && git reset -q --soft HEAD~1 && git status --short'),
  job('git clone', 'git clone -q repo copy && cd copy && git log --format=%s | head -1; cd ..; rm -rf copy'),
  job('git worktree', 'cd repo && git worktree add -q ../tree -b side && ls ../tree && git worktree remove ../tree'),
  job('git blame and grep', 'cd repo && git grep -n 1 HEAD -- f; git rev-parse --abbrev-ref HEAD'),
  job(
    'git in the working folder',
    'git add -A . >/dev/null 2>&1; git commit -qm work; git log --format=%s | head -1; git status --short | wc -l',
  ),
];

/** A registry with one package, for npm. */
export const REGISTRY = `
import { createServer } from 'node:http';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
mkdirSync('/tmp/pkg/package', { recursive: true });
writeFileSync('/tmp/pkg/package/package.json', JSON.stringify({ name: 'small', version: '1.0.0', main: 'index.js' }));
writeFileSync('/tmp/pkg/package/index.js', 'module.exports = 41;');
execFileSync('tar', ['czf', '/tmp/pkg/small.tgz', '-C', '/tmp/pkg', 'package']);
const bytes = readFileSync('/tmp/pkg/small.tgz');
const integrity = 'sha512-' + createHash('sha512').update(bytes).digest('base64');
const dist = { tarball: 'http://127.0.0.1:18766/small.tgz', integrity };
const about = { name: 'small', 'dist-tags': { latest: '1.0.0' }, versions: { '1.0.0': { name: 'small', version: '1.0.0', dist } } };
createServer((request, response) => response.end(request.url.endsWith('.tgz') ? bytes : JSON.stringify(about))).listen(18766, '127.0.0.1');
`;

export const PROJECT = JSON.stringify({
  name: 'project',
  version: '1.0.0',
  dependencies: { small: '1.0.0' },
  scripts: { test: `node -e "console.log(require('small') + 1)"` },
});
