package orders;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;

/** What the application took requests for: one JSON line each, in the file of -Dsightings. */
final class Sightings {
    private final String backend;
    private final OutputStream file;

    Sightings(String backend) throws IOException {
        this.backend = backend;
        file = new FileOutputStream(System.getProperty("sightings"), true);
    }

    /** Records a request's order before it is answered. What is no number above 0 is no order. */
    synchronized void add(String request, boolean settle, Object order, String key, String via) {
        String number = order == null ? "" : String.valueOf(order);
        if (number.isEmpty() || order instanceof Long && (Long) order < 1) {
            return;
        }
        String line = "{" + member("case", request) + "," + member("backend", backend) + ","
            + member("what", settle ? "settle" : "lookup") + "," + member("order", number) + ","
            + member("key", key) + "," + member("via", via) + "}\n";
        try {
            file.write(line.getBytes(StandardCharsets.US_ASCII)); // in one piece
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static String member(String name, String value) {
        StringBuilder text = new StringBuilder("\"" + name + "\":\"");
        for (char c : (value == null ? "" : value).toCharArray()) {
            if (c < ' ' || c > '~' || c == '"' || c == '\\') {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        return text.append('"').toString();
    }
}
