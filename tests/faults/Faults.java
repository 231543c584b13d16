import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/** Sends mappings of files that are truncated, while other threads provoke NullPointerExceptions, which the JVM makes of SIGSEGV. */
public final class Faults {
    private static final int LENGTH = 1 << 20;
    private int field = 1;

    private static int read(Faults one) {
        return one.field;
    }

    private static long provoke(AtomicBoolean goesOn, AtomicLong caught) {
        long sum = 0;
        Faults[] some = {new Faults(), null};
        for (long i = 0; goesOn.get(); i++) {
            try {
                sum += read(some[i % 64 == 63 ? 1 : 0]);
            } catch (NullPointerException expected) {
                caught.incrementAndGet();
            }
        }
        return sum;
    }

    private static boolean fails(SocketChannel to, Path file, int good) throws IOException {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            channel.write(ByteBuffer.allocate(1), LENGTH - 1);
            MappedByteBuffer mapped = channel.map(FileChannel.MapMode.READ_ONLY, 0, LENGTH);
            channel.truncate(good);
            try {
                while (mapped.hasRemaining()) {
                    to.write(mapped);
                }
                return false;
            } catch (IOException error) {
                return String.valueOf(error.getMessage()).contains("Bad address");
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        AtomicBoolean goesOn = new AtomicBoolean(true);
        AtomicLong caught = new AtomicLong();
        Thread[] provoking = new Thread[2];
        for (int i = 0; i < provoking.length; i++) {
            provoking[i] = new Thread(() -> provoke(goesOn, caught));
            provoking[i].start();
        }
        ServerSocketChannel listener = ServerSocketChannel.open().bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        SocketChannel client = SocketChannel.open(listener.getLocalAddress());
        SocketChannel served = listener.accept();
        Thread reader = new Thread(() -> {
            ByteBuffer room = ByteBuffer.allocateDirect(1 << 16);
            try {
                while (served.read(room) >= 0) {
                    room.clear();
                }
            } catch (IOException error) {
                System.out.println("the reader: " + error);
            }
        });
        reader.start();
        client.write(ByteBuffer.wrap(new byte[] {1}));
        for (int i = 0; i < Integer.parseInt(arguments[1]); i++) {
            if (!fails(client, Path.of(arguments[0], "file" + i), i % 4 * 40960)) {
                System.out.println("file " + i + " was sent");
                System.exit(1);
            }
            long before = caught.get();
            while (caught.get() == before) {
                Thread.sleep(1);
            }
        }
        client.write(ByteBuffer.wrap(new byte[] {1}));
        client.close();
        reader.join();
        goesOn.set(false);
        for (Thread thread : provoking) {
            thread.join();
        }
        System.out.println("as it should be");
    }
}
