import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.Executors;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Order service: java -Dorders.data=DIR -Dorders.seed=N OrderService.java [PORT]
 *
 * One file per order in DIR/orders. The orders 1..N come from the old system:
 * they exist, unpaid, until one is written here.
 */
public class OrderService {
    record Order(long id, String amount, String commission) {
        String json() {
            return "{\"orderId\":" + id + ",\"amount\":" + amount + ",\"commission\":\"" + commission + "\"}";
        }
    }

    static final Path DATA = Path.of(setting("orders.data", "ORDERS_DATA", "data"));
    static final long SEED = Long.parseLong(setting("orders.seed", "ORDERS_SEED", "0"));
    static final Pattern ROUTE = Pattern.compile("/orders/(\\d{1,18})(/settle|/statement)?");
    /** Of 17 digits at most: the IDs given after the greatest one still fit ROUTE. */
    static final Pattern ID = Pattern.compile("\"orderId\"\\s*:\\s*\"?(\\d{1,17})\\b");
    static final Pattern AMOUNT = Pattern.compile("\"amount\"\\s*:\\s*\"?(\\d{1,12}(?:\\.\\d{1,12})?)\\b");
    static final Pattern COMMISSION = Pattern.compile("\"commission\"\\s*:\\s*\"(\\w+)\"");
    static final int MAX_BODY = 65536;
    static long nextId = SEED + 1;

    public static void main(String[] args) throws IOException {
        Files.createDirectories(DATA.resolve("orders"));
        try (var files = Files.list(DATA.resolve("orders"))) {
            files.map(f -> f.getFileName().toString()).filter(n -> n.endsWith(".json"))
                .forEach(n -> nextId = Math.max(nextId, Long.parseLong(n.replace(".json", "")) + 1));
        }
        int port = args.length > 0 ? Integer.parseInt(args[0]) : 8080;
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 1024);
        server.createContext("/", OrderService::handle);
        server.setExecutor(Executors.newFixedThreadPool(64));
        server.start();
        System.out.println("listening on 127.0.0.1:" + server.getAddress().getPort());
    }

    static void handle(HttpExchange x) throws IOException {
        try {
            route(x, x.getRequestMethod(), x.getRequestURI().getPath());
        } catch (RuntimeException e) {
            answer(x, 500, "{\"error\":\"internal error\"}");
        }
    }

    static void route(HttpExchange x, String method, String path) throws IOException {
        if (method.equals("POST") && path.equals("/orders")) {
            create(x, new String(x.getRequestBody().readNBytes(MAX_BODY), StandardCharsets.UTF_8));
            return;
        }
        Matcher m = ROUTE.matcher(path);
        Order order = m.matches() ? read(Long.parseLong(m.group(1))) : null;
        if (order == null) {
            answer(x, 404, m.matches() ? "{\"error\":\"order not found\"}" : "{\"error\":\"not found\"}");
            return;
        }
        switch (method + " " + (m.group(2) == null ? "" : m.group(2))) {
            case "GET ", "HEAD " -> answer(x, 200, order.json());
            case "POST /settle" -> settle(x, order);
            case "GET /statement" -> statement(x, order);
            default -> answer(x, 405, "{\"error\":\"method not allowed\"}");
        }
    }

    static void create(HttpExchange x, String body) throws IOException {
        Matcher amount = AMOUNT.matcher(body);
        if (!amount.find()) {
            answer(x, 400, "{\"error\":\"amount missing\"}");
            return;
        }
        Matcher wanted = ID.matcher(body);
        Order order;
        long id;
        synchronized (OrderService.class) {
            id = wanted.find() ? Long.parseLong(wanted.group(1)) : nextId;
            order = id < 1 || read(id) != null ? null : new Order(id, amount.group(1), "open");
            if (order != null) {
                write(order);
                nextId = Math.max(nextId, id + 1);
            }
        }
        if (order == null) {
            answer(x, 409, "{\"error\":\"order exists\",\"orderId\":" + id + "}");
            return;
        }
        x.getResponseHeaders().set("Location", "/orders/" + order.id());
        x.getResponseHeaders().set("X-Order-Id", String.valueOf(order.id()));
        answer(x, 201, order.json());
    }

    static void settle(HttpExchange x, Order order) throws IOException {
        if (order.commission().equals("paid")) {
            answer(x, 200, "{\"paid\":false,\"reason\":\"already paid\"}");
            return;
        }
        callPaymentProvider(order, number(x, "slow", 50, 0, 10000));
        write(new Order(order.id(), order.amount(), "paid"));
        answer(x, 200, "{\"paid\":true}");
    }

    static void callPaymentProvider(Order order, long millis) throws IOException {
        sleep(millis);
        append("payments.log", "order=" + order.id() + " amount=" + order.amount());
    }

    static void statement(HttpExchange x, Order order) throws IOException {
        long chunks = number(x, "chunks", 5, 1, 100);
        long every = number(x, "every", 200, 0, 2000);
        log(x, 200);
        x.getResponseHeaders().set("Content-Type", "text/plain");
        x.sendResponseHeaders(200, 0);
        try (OutputStream out = x.getResponseBody()) {
            for (long i = 1; i <= chunks; i++) {
                out.write(("order " + order.id() + " line " + i + " of " + chunks + "\n").getBytes());
                out.flush();
                if (i < chunks) {
                    sleep(every);
                }
            }
        }
    }

    static Order read(long id) throws IOException {
        Path file = DATA.resolve("orders/" + id + ".json");
        if (!Files.exists(file)) {
            return id >= 1 && id <= SEED ? new Order(id, String.valueOf(100 + id % 900), "open") : null;
        }
        String text = Files.readString(file);
        Matcher amount = AMOUNT.matcher(text), commission = COMMISSION.matcher(text);
        if (!amount.find() || !commission.find()) {
            throw new IllegalStateException("bad order file " + file);
        }
        return new Order(id, amount.group(1), commission.group(1));
    }

    static void write(Order order) throws IOException {
        Path temp = DATA.resolve("orders/" + order.id() + "." + Thread.currentThread().getId());
        Files.writeString(temp, order.json());
        Files.move(temp, DATA.resolve("orders/" + order.id() + ".json"), StandardCopyOption.ATOMIC_MOVE);
    }

    static void answer(HttpExchange x, int status, String body) throws IOException {
        byte[] bytes = (body + "\n").getBytes(StandardCharsets.UTF_8);
        log(x, status);
        x.getResponseHeaders().set("Content-Type", "application/json");
        boolean head = x.getRequestMethod().equals("HEAD");
        x.sendResponseHeaders(status, head ? -1 : bytes.length);
        if (!head) {
            try (OutputStream out = x.getResponseBody()) {
                out.write(bytes);
            }
        }
    }

    static void log(HttpExchange x, int status) throws IOException {
        append("access.log", x.getRequestMethod() + " " + x.getRequestURI() + " " + status);
    }

    static synchronized void append(String file, String line) throws IOException {
        Files.writeString(DATA.resolve(file), line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    static long number(HttpExchange x, String name, long fallback, long min, long max) {
        String query = x.getRequestURI().getRawQuery();
        Matcher m = Pattern.compile("(?:^|&)" + name + "=(\\d{1,9})(?:&|$)").matcher(query == null ? "" : query);
        return m.find() ? Math.min(Math.max(Long.parseLong(m.group(1)), min), max) : fallback;
    }

    static String setting(String property, String variable, String fallback) {
        String env = System.getenv(variable);
        return System.getProperty(property, env == null || env.isEmpty() ? fallback : env);
    }

    static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
