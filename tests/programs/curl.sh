# Requests of curl to a web server that has $DATA at $url. Read by cases with ".", not run.
# shellcheck shell=bash disable=SC2154

for file in 1 1000 100K 1M large; do
    client "get-$file" curl -sSf "$url/$file"
    content "get-$file" "get-$file.out"
done

client in-turn curl -sS -w '%{stderr}%{http_code} %{size_download} %{num_connects}\n' \
    "$url/1" "$url/1000" "$url/1M" "$url/100K" "$url/nothing" "$url/1"
content in-turn in-turn.out
note "in-turn: $(tr '\n' ';' <in-turn.err)"

client head curl -sSf -I "$url/1M"
note "head: $(grep -ci '^content-length: 1048576' head.out)"

parallel=()
for number in {1..50}; do
    parallel+=(-o "parallel.$number" "$url/1M")
done
client parallel curl -sSf --no-progress-meter -Z --parallel-immediate --parallel-max 50 "${parallel[@]}"
content parallel parallel.{1..50}

# A slow reader: the server has to wait for it and must lose nothing.
client slow curl -sSf --limit-rate 2M --max-filesize 2000000 "$url/1M"
content slow slow.out
