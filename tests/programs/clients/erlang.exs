# Both ends of an Elixir program: erlang.exs serve PORT | talk PORT COUNT | node | ask NAME COUNT.
#
# `serve` and `talk` speak lines over gen_tcp, `node` and `ask` are nodes of Erlang's distribution.
# The client prints what came back.

defmodule Lines do
  @options [:binary, packet: :line, active: false, reuseaddr: true, ip: {127, 0, 0, 1}, buffer: 65536]

  def serve(port) do
    {:ok, listener} = :gen_tcp.listen(port, @options)
    Stream.repeatedly(fn -> :gen_tcp.accept(listener) end)
    |> Enum.each(fn {:ok, socket} ->
      worker = spawn(fn -> receive do: (:go -> :inet.setopts(socket, active: :once) && echo(socket)) end)
      :gen_tcp.controlling_process(socket, worker)
      send(worker, :go)
    end)
  end

  defp echo(socket) do
    receive do
      {:tcp, ^socket, line} ->
        :ok = :gen_tcp.send(socket, line)
        :inet.setopts(socket, active: :once)
        echo(socket)

      _ ->
        :gen_tcp.close(socket)
    end
  end

  def talk(port, count) do
    {:ok, socket} = :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, packet: :line, active: false, buffer: 65536])

    for number <- 1..count do
      line = "#{number} " <> String.duplicate("x", rem(number * 7919, 5000)) <> "\n"
      :ok = :gen_tcp.send(socket, line)
      {:ok, ^line} = :gen_tcp.recv(socket, 0, 20000)
      IO.write(line)
    end

    :gen_tcp.close(socket)
  end
end

defmodule Nodes do
  def serve do
    Process.register(self(), :echo)
    loop()
  end

  defp loop do
    receive do
      {from, what} -> send(from, {:back, what})
    end

    loop()
  end

  def ask(name, count) do
    true = Node.connect(name)

    for number <- 1..count do
      what = {number, :crypto.hash(:sha256, <<number::32>>), String.duplicate("y", rem(number * 7919, 5000))}
      send({:echo, name}, {self(), what})
      receive do: ({:back, ^what} -> :ok), after: (20000 -> raise("no answer"))
      IO.puts("#{number} #{Base.encode16(elem(what, 1))}")
    end
  end
end

case System.argv() do
  ["serve", port] -> Lines.serve(String.to_integer(port))
  ["talk", port, count] -> Lines.talk(String.to_integer(port), String.to_integer(count))
  ["node"] -> Nodes.serve()
  ["ask", name, count] -> Nodes.ask(String.to_atom(name), String.to_integer(count))
end
