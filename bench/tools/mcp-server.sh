# An MCP server over stdio that does as little as possible. $1: a file with the JSON of its tools.
while IFS= read -r line; do
  id=${line##*\"id\":}
  id=${id%%[,\}]*}
  case $line in
    *'"method":"initialize"'*)
      info='"serverInfo":{"name":"bench","version":"1"}'
      result="\"result\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{}},$info}"
      ;;
    *'"method":"tools/list"'*)
      printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":' "$id"
      cat "$1"
      printf '}}\n'
      continue
      ;;
    *'"method":"tools/call"'*) result='"result":{"content":[{"type":"text","text":"done"}]}' ;;
    *'"method":"notifications/'*) continue ;;
    *) result='"error":{"code":-32601,"message":"Method not found"}' ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$result"
done
