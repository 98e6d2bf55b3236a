import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Arrays;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.config.Config;

/**
 * A Java service that takes locks with Redisson when it is told to:
 * Agent PORT single|cluster redis://HOST:PORT WATCHDOG_MILLIS
 *
 * It listens on a port of 127.0.0.1 (0: any, which it prints). Each connection
 * has a thread of its own, since that is what a lock of Redisson belongs to. A
 * line is a call, of words in URL encoding with a space between; the answer is
 * one line as well:
 *
 *   ok NANOS MICROS [VALUE]
 *   error NANOS MICROS CLASS [MESSAGE]
 *
 * with how long the call took, and when it returned since 1970.
 */
public final class Agent {
    public static void main(String[] args) {
        try (ServerSocket server = new ServerSocket(Integer.parseInt(args[0]), 0, InetAddress.getLoopbackAddress())) {
            RedissonClient redisson = Redisson.create(config(args[1], args[2], Long.parseLong(args[3])));
            System.out.println("listening on 127.0.0.1:" + server.getLocalPort());
            while (true) {
                Socket connection = server.accept();
                new Thread(() -> serve(redisson, connection)).start();
            }
        } catch (IOException | RedisException e) { // the whole reason, at the end of the output
            System.err.println("agent: " + e.getMessage() + (e.getCause() == null ? "" : ": " + e.getCause()));
            System.exit(1);
        }
    }

    /** As few connections and threads as will do: starting them is what a test waits for. */
    static Config config(String mode, String address, long watchdogMillis) {
        Config config = new Config().setThreads(4).setNettyThreads(4).setLockWatchdogTimeout(watchdogMillis);
        switch (mode) {
            case "single" -> config.useSingleServer().setAddress(address)
                .setConnectionMinimumIdleSize(1).setConnectionPoolSize(32)
                .setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(8);
            case "cluster" -> config.useClusterServers().addNodeAddress(address)
                .setMasterConnectionMinimumIdleSize(1).setMasterConnectionPoolSize(32)
                .setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(8)
                .setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(8);
            default -> throw new IllegalArgumentException("unknown mode " + mode);
        }
        return config;
    }

    static void serve(RedissonClient redisson, Socket connection) {
        Commands commands = new Commands(redisson);
        try (connection;
                var in = new BufferedReader(new InputStreamReader(connection.getInputStream(), StandardCharsets.UTF_8));
                var out = new OutputStreamWriter(connection.getOutputStream(), StandardCharsets.UTF_8)) {
            connection.setTcpNoDelay(true);
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                answer(out, commands, words(line));
            }
        } catch (IOException e) {
            // The test has left: so does its thread.
        }
    }

    static void answer(Writer out, Commands commands, List<String> words) throws IOException {
        String status = "ok";
        String value;
        long start = System.nanoTime();
        long nanos;
        Instant now;
        try {
            Object result = commands.run(words.get(0), words.subList(1, words.size()));
            nanos = System.nanoTime() - start;
            now = Instant.now();
            value = result == null ? "" : encode(result.toString());
        } catch (Exception e) {
            nanos = System.nanoTime() - start;
            now = Instant.now();
            status = "error";
            value = encode(e.getClass().getSimpleName()) + " " + encode(String.valueOf(e.getMessage()));
        }
        out.write(status + " " + nanos + " " + ChronoUnit.MICROS.between(Instant.EPOCH, now) + " " + value + "\n");
        out.flush();
    }

    static List<String> words(String line) {
        return Arrays.stream(line.split(" ", -1)).map(w -> URLDecoder.decode(w, StandardCharsets.UTF_8)).toList();
    }

    static String encode(String word) {
        return URLEncoder.encode(word, StandardCharsets.UTF_8);
    }
}
