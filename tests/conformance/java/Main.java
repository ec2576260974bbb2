import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/**
 * Reads one command a line from standard input (words separated by tabs) and runs it: a verb of
 * {@link Verbs}, or a scenario named Class.method that checks its own expectations. Ends each
 * with "ok" or "failed" and the exception, base64.
 */
public final class Main {
    public static void main(String[] ignored) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            String[] rest = java.util.Arrays.copyOfRange(words, 1, words.length);
            try {
                int dot = words[0].indexOf('.');
                Class<?> home = Class.forName(dot < 0 ? "Verbs" : words[0].substring(0, dot));
                home.getMethod(words[0].substring(dot + 1), String[].class).invoke(null, (Object) rest);
                System.out.println("ok");
            } catch (Throwable caught) {
                Throwable cause = caught;
                if (caught instanceof java.lang.reflect.InvocationTargetException) {
                    cause = caught.getCause();
                }
                if (cause instanceof java.util.concurrent.ExecutionException && cause.getCause() != null) {
                    cause = cause.getCause();
                }
                StringWriter text = new StringWriter();
                text.append(cause.getClass().getSimpleName()).append('\n');
                cause.printStackTrace(new PrintWriter(text, true));
                byte[] bytes = text.toString().getBytes(StandardCharsets.UTF_8);
                System.out.println("failed " + Base64.getEncoder().encodeToString(bytes));
            }
            System.out.flush();
        }
    }
}
